"""LiteRT's ``InterpreterWithCustomOps``, for programs that register kernels of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tflgpu.interpreter.interpreter import Interpreter


class InterpreterWithCustomOps(Interpreter):
    """An :class:`Interpreter` for programs that register kernels in LiteRT's process.

    Nothing here can run those kernels. A model that has such operators is refused by :meth:`allocate_tensors`, unless
    a package adds them to tflgpu (docs/guide/custom-operators.md); other models run.

    custom_op_registerers: functions, which are not called. Names of functions raise ValueError, as unknown ones do in
    LiteRT, and anything else TypeError.
    """

    def __init__(
        self, custom_op_registerers: Iterable[str | Callable[[int], None]] | None = None, **kwargs: Any
    ) -> None:
        for registerer in custom_op_registerers or ():
            if isinstance(registerer, str):
                raise ValueError(
                    f"Looking up symbol '{registerer}' failed: kernels of LiteRT's process cannot run on a device; "
                    "the documentation (Writing an operator in ten minutes) says how tflgpu gets operators"
                )
            if not callable(registerer):
                raise TypeError(f"a function that registers an operator was expected, not {registerer!r}")
        super().__init__(**kwargs)
