"""An artifact brought to life on a device: programs built, memory taken, ready to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from tflgpu.artifact import Artifact, CpuPart, DevicePart, Part, TensorIndex, without_constants
from tflgpu.build import build, keep
from tflgpu.cache import Cache
from tflgpu.errors import UnsupportedError
from tflgpu.interpreter import CpuPiece
from tflgpu.runtime.executor import Executor, Interval, LaunchExecutor
from tflgpu.runtime.persistent import PersistentExecutor
from tflgpu.runtime.session import Session
from tflgpu.stopwatch import Stopwatch

Values = Mapping[TensorIndex, NDArray[Any]]


class Instance:
    """Runs the parts of an artifact in order. Not thread-safe: the caller serializes the calls."""

    def __init__(self, artifact: Artifact, session: Session, clock: Stopwatch, cache: Cache | None = None) -> None:
        """Raises BuildError, DeviceError, and UnsupportedError if LiteRT refuses the CPU's part as well.

        cache: where binaries are looked up that the artifact does not have.
        """
        self.artifact = artifact
        self._session = session
        started = [self._start(part, clock, cache) for part in artifact.parts]
        self.artifact = replace(artifact, parts=tuple(part for part, _ in started))
        self._engines = [engine for _, engine in started]

    def _start(self, part: Part, clock: Stopwatch, cache: Cache | None) -> tuple[Part, Executor | CpuPiece]:
        """The engine of a part, and the part with the binaries it is made of."""
        if isinstance(part, CpuPart):
            piece = self._interpreter(part)
            clock.lap("interpreter")
            return part, piece
        program, binaries = build(part.source, self._session, part.binaries, cache)
        clock.lap("build")
        executor = open_executor(part, program, self._session)
        clock.lap("upload")
        if cache is not None and not binaries:
            executor.warm_up()
            clock.lap("build")
            binaries = keep(program, part.source, self._session, cache)
            clock.lap("store")
        return replace(part, binaries=binaries), executor

    def release_constants(self) -> None:
        """Forget the host's copy of what the device has: weights and binaries."""
        self.artifact = without_constants(self.artifact)

    def _interpreter(self, part: CpuPart) -> CpuPiece:
        try:
            return CpuPiece(part.model)
        except (ImportError, RuntimeError, ValueError) as error:
            refusal = " ".join(str(error).split())
            raise UnsupportedError(
                (*self.artifact.report.reasons, f"LiteRT's interpreter refuses them: {refusal}")
            ) from error

    def run(self, inputs: Values) -> dict[TensorIndex, NDArray[Any]]:
        """One inference: the model's inputs by the file's tensor index -> these, what passed between parts, outputs."""
        values = dict(inputs)
        for part, engine in self._parts():
            results = engine.run([values[t] for t in part.inputs])
            values |= zip(part.outputs, results, strict=True)
        return values

    def reset_state(self) -> None:
        """Put every variable back to its first value."""
        for engine in self._engines:
            engine.reset_state()

    def profile(self, inputs: Values, runs: int) -> list[tuple[DevicePart, list[Interval]]]:
        """For each part on the device when its launches began and ended; for the model's state it is one run."""
        values = self.run(inputs)
        return [
            (part, engine.profile([values[t] for t in part.inputs], runs))
            for part, engine in self._parts()
            if isinstance(part, DevicePart) and isinstance(engine, Executor)
        ]

    def _parts(self) -> Iterator[tuple[Part, Executor | CpuPiece]]:
        return zip(self.artifact.parts, self._engines, strict=True)


def open_executor(part: DevicePart, program: Any, session: Session) -> Executor:
    """The executor that the part was compiled for. Raises DeviceError if memory runs out."""
    kind = PersistentExecutor if part.executable.persistent else LaunchExecutor
    return kind(part.executable, program, session)
