"""Runs a partition of a model with LiteRT: in this process, once it has run in the guarded one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from tflgpu.artifact.artifact import Artifact, CpuPartition
from tflgpu.artifact.cache import Cache, Key, trial_key
from tflgpu.errors import UnsupportedError
from tflgpu.fallback.guarded_process import GuardedProcess, RefusedError
from tflgpu.fallback.guarded_requests import ask_guarded
from tflgpu.fallback.litert_interpreter import REFUSALS, Array, FileInterpreter, LitertInterpreter
from tflgpu.fallback.submodel import Submodel

_known: set[str] = set()  # names of the keys of sub-models that have run in this process; for models without a cache


class CpuEngine:
    """Runs the operators of one partition on the CPU. Not thread-safe: the caller serializes the calls.

    The first run of a partition that LiteRT has never run is made twice: with the same inputs in a guarded process
    before. Zeros in place of the inputs could loop for ever where the caller's numbers do not, and the other way round.
    """

    def __init__(self, submodel: Submodel, process: GuardedProcess, cache: Cache | None) -> None:
        """Open LiteRT's interpreter, if it has run these operators before or ``process`` has no limit of time.

        Args:
            submodel: The operators.
            process: Where they run for the first time.
            cache: Knows which sub-models have run in earlier processes.

        Raises:
            RuntimeError, ValueError: LiteRT refuses the operators.
        """
        self._submodel, self._process, self._cache = submodel, process, cache
        self._interpreter: LitertInterpreter | None = None
        if process.seconds is None or _has_run(submodel, cache):
            self._interpreter = self._open()

    def _open(self) -> LitertInterpreter:
        return LitertInterpreter(self._submodel.model, is_open=self._submodel.is_open)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the partition once.

        Args:
            inputs: Arrays of any shapes in the order of the partition's inputs.

        Returns:
            New arrays in the order of its outputs.

        Raises:
            ValueError: The operators cannot take these inputs.
            UnsupportedError: LiteRT crashes, or takes longer than ``process`` gives it.
        """
        if self._interpreter is None:
            ask_guarded(self._process, "run", self._submodel, inputs)
            self._interpreter = self._open()
            _note_run(self._submodel, self._cache)
        return self._interpreter.run(inputs)

    def reset_state(self) -> None:
        """Set every variable to its initial value."""
        if self._interpreter is not None:
            self._interpreter.reset_state()


class InterpreterKeeper:
    """Keeps the interpreter of a user's file, for all signatures of an opened model."""

    def __init__(self) -> None:
        self._interpreter: FileInterpreter | None = None

    def interpreter(self, model: bytes) -> FileInterpreter:
        """Return the interpreter of the file, which is opened when it is first asked for.

        Args:
            model: The bytes of the file; later calls ignore them.
        """
        if self._interpreter is None:
            self._interpreter = FileInterpreter(model)
        return self._interpreter

    def reset(self) -> None:
        """Forget all that LiteRT has kept."""
        self._interpreter = None


class SharedCpuEngine:
    """Runs a signature in the interpreter of its file, which all signatures of an opened model share.

    keeper: of this interpreter; the engine's own, until callers give another one. The first run of a signature that
    LiteRT has never run is made twice, as by :class:`CpuEngine`.
    """

    def __init__(self, submodel: Submodel, process: GuardedProcess, cache: Cache | None) -> None:
        """Open nothing: the keeper may have an interpreter. The arguments are those of :class:`CpuEngine`."""
        assert submodel.place is not None
        self._submodel, self._process, self._cache, self._place = submodel, process, cache, submodel.place
        self._is_tried = process.seconds is None or _has_run(submodel, cache)
        self.keeper = InterpreterKeeper()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the signature once. The errors are those of :meth:`CpuEngine.run`.

        Args:
            inputs: Arrays in the order of the partition's inputs.

        Returns:
            Arrays in the order of its outputs.
        """
        if not self._is_tried:
            with suppress(RefusedError):  # it may lack what earlier runs have kept here
                ask_guarded(self._process, "run", self._submodel, inputs)
            self._is_tried = True
            _note_run(self._submodel, self._cache)
        return self.keeper.interpreter(self._submodel.model).run(self._place, inputs)

    def reset_state(self) -> None:
        """Do nothing: the keeper forgets."""


def cpu_engine_of(submodel: Submodel, process: GuardedProcess, cache: Cache | None) -> CpuEngine | SharedCpuEngine:
    """Return the engine that runs operators on the CPU. The errors are those of :class:`CpuEngine`.

    Args:
        submodel: The operators.
        process: Where LiteRT tries them first.
        cache: Notes models that LiteRT has run; None for no cache.
    """
    return (CpuEngine if submodel.entry is None else SharedCpuEngine)(submodel, process, cache)


def prepare(partition: CpuPartition, artifact: Artifact, process: GuardedProcess) -> None:
    """Let LiteRT prepare a partition of an artifact in a guarded process.

    Args:
        partition: A partition for the CPU.
        artifact: The model that it is of.
        process: Where LiteRT tries it.

    Raises:
        UnsupportedError: LiteRT refuses the partition, or crashes.
    """
    try:
        ask_guarded(process, "prepare", Submodel.of(partition, artifact))
    except RefusedError as refusal:
        raise _refused(artifact, refusal) from refusal


def open_engine(
    partition: CpuPartition, artifact: Artifact, process: GuardedProcess, cache: Cache | None
) -> CpuEngine | SharedCpuEngine:
    """Return the engine of a partition of an artifact.

    Args:
        partition: One of the artifact's partitions.
        artifact: The model.
        process: Where the partition runs for the first time.
        cache: Knows which partitions have run in earlier processes.

    Raises:
        UnsupportedError: LiteRT refuses it, too.
    """
    try:
        return cpu_engine_of(Submodel.of(partition, artifact), process, cache)
    except (ImportError, *REFUSALS) as error:
        raise _refused(artifact, error) from error


def _refused(artifact: Artifact, refusal: Exception) -> UnsupportedError:
    """Return the error for operators that neither the device nor LiteRT can run."""
    words = " ".join(str(refusal).split())
    return UnsupportedError((*artifact.report.reasons, f"LiteRT's interpreter refuses them: {words}"))


def _has_run(submodel: Submodel, cache: Cache | None) -> bool:
    """Whether LiteRT has run this model without a crash before: in this process, or by the cache in an earlier one."""
    key = _key(submodel)
    known = key.name in _known
    if cache is None:
        return known
    if cache.load(key) is not None:
        return True
    if known:  # from a run with another cache, or with none
        cache.store(key, {}, {})
    return known


def _note_run(submodel: Submodel, cache: Cache | None) -> None:
    """Note that LiteRT has run this model without a crash."""
    key = _key(submodel)
    _known.add(key.name)
    if cache is not None:
        cache.store(key, {}, {})


def _key(submodel: Submodel) -> Key:
    try:
        litert = version("ai-edge-litert")
    except PackageNotFoundError:  # installed under another name
        litert = ""
    return trial_key(submodel.model, litert if submodel.place is None else f"{litert} {submodel.place}")
