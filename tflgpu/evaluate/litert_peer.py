"""LiteRT's CPU interpreter, to compare with; it comes with the extra ``fallback``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from numpy.typing import NDArray

from tflgpu.errors import install_command
from tflgpu.fallback import is_installed
from tflgpu.fallback.guarded_process import CrashedError, GuardedProcess
from tflgpu.fallback.litert_interpreter import without_notices

SECONDS = 600.0  # for the first run; the whole of a large model takes many


def require_litert() -> None:
    """Raise ValueError if LiteRT is not installed."""
    if not is_installed():
        raise ValueError(f"LiteRT is not installed; {install_command('fallback')} brings it")


class LiteRT:
    """A model on LiteRT's CPU path with its defaults, XNNPACK where it applies.

    keep_tensors: leave every intermediate result in memory, which only the plain kernels do.
    Raises ValueError if LiteRT is not installed or refuses the model.
    """

    def __init__(self, model: bytes, threads: int | None, *, keep_tensors: bool = False) -> None:
        """threads: None leaves the number to LiteRT."""
        require_litert()
        # An extra of the package, which most verbs do without.
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        self.version = version("ai-edge-litert")
        self.name = f"LiteRT {self.version} CPU"
        self.threads = threads
        self._model: bytes | None = model  # until it has run
        # A process of its own, so that a model that LiteRT does not survive costs its comparison only.
        self._guarded = GuardedProcess(SECONDS)
        try:
            self._guarded.ask("prepare", model)
            with without_notices():
                self._interpreter: Any = Interpreter(
                    model_content=model,
                    num_threads=threads,
                    experimental_preserve_all_tensors=keep_tensors,
                    experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
                    if keep_tensors
                    else OpResolverType.AUTO,
                )
                self._interpreter.allocate_tensors()
        except (RuntimeError, ValueError, CrashedError) as error:
            raise ValueError(f"LiteRT cannot run this model: {_in_a_line(error)}") from error
        self._inputs = [d["index"] for d in self._interpreter.get_input_details()]
        self._outputs = [d["index"] for d in self._interpreter.get_output_details()]

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Run the model in LiteRT's interpreter.

        Args:
            inputs: In the order of the model's main subgraph.

        Returns:
            The outputs, in the order of the main subgraph.

        Raises:
            ValueError: LiteRT refuses the inputs, for instance an index out of range.
        """
        try:
            if self._model is not None:
                with self._guarded:
                    self._guarded.ask("run", self._model, inputs)
                self._model = None
            for index, array in zip(self._inputs, inputs, strict=True):
                self._interpreter.set_tensor(index, array)
            self._interpreter.invoke()
        except (RuntimeError, ValueError, CrashedError) as error:
            raise ValueError(f"LiteRT cannot run this model on these inputs: {_in_a_line(error)}") from error
        return [self._interpreter.get_tensor(index) for index in self._outputs]

    def reset(self) -> None:
        """Give variable tensors their first values; resource variables keep theirs."""
        self._interpreter.reset_all_variables()

    def tensor(self, index: int) -> NDArray[Any] | None:
        """Return a tensor of the main subgraph after a run; None if nothing has computed it.

        Args:
            index: The tensor's index in the file.
        """
        try:
            result: NDArray[Any] = self._interpreter.get_tensor(index)
        except ValueError:
            return None
        return result


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())
