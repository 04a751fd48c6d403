"""Runs a partition of a model with LiteRT: in this process, once it has run in another one."""

from __future__ import annotations

from collections.abc import Sequence

from tflgpu.artifact.artifact import Artifact, CpuPartition
from tflgpu.artifact.cache import Cache
from tflgpu.litert.cpu_executor import REFUSALS, Array, CpuExecutor
from tflgpu.litert.piece import Piece, refused, try_piece
from tflgpu.litert.trial import Trial
from tflgpu.runtime.tried import is_tried, remember


class CpuEngine:
    """Runs the operators of one partition on the CPU. Not thread-safe: the caller serializes the calls.

    The first run of a partition that LiteRT has never run is made twice: with the same inputs in a process of its own
    before. Zeros in place of the inputs could loop for ever where the caller's numbers do not, and the other way round.
    """

    def __init__(self, piece: Piece, trial: Trial, cache: Cache | None) -> None:
        """trial: where it runs for the first time; without a limit of time, here at once.

        Raises RuntimeError or ValueError if LiteRT refuses the operators.
        """
        self._piece, self._trial, self._cache = piece, trial, cache
        self._executor: CpuExecutor | None = None
        if trial.seconds is None or is_tried(piece.model, cache):
            self._executor = self._open()

    def _open(self) -> CpuExecutor:
        return CpuExecutor(self._piece.model, is_open=self._piece.is_open)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Arrays of any shapes in the order of the partition's inputs -> new arrays in the order of its outputs.

        Raises ValueError for inputs that the operators cannot take, UnsupportedError if LiteRT crashes or takes longer
        than ``trial`` gives it.
        """
        if self._executor is None:
            try_piece(self._trial, "run", self._piece, inputs)
            self._executor = self._open()
            remember(self._piece.model, self._cache)
        return self._executor.run(inputs)

    def reset_state(self) -> None:
        """Set every variable to its initial value."""
        if self._executor is not None:
            self._executor.reset_state()


def open_engine(partition: CpuPartition, artifact: Artifact, trial: Trial, cache: Cache | None) -> CpuEngine:
    """The engine of one of the artifact's partitions. Raises UnsupportedError if LiteRT refuses it, too."""
    piece = Piece(partition.model, artifact.codes(partition), partition.is_open)
    try:
        return CpuEngine(piece, trial, cache)
    except (ImportError, *REFUSALS) as error:
        raise refused(artifact.report.reasons, error) from error
