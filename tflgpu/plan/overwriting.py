"""Which of its inputs a kernel may write its result over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tflgpu.graph.ir import TensorId
from tflgpu.kernels.access import Access
from tflgpu.kernels.kernel import Argument
from tflgpu.plan.plan import PlannedKernel


def overwritable(planned: PlannedKernel, root: Mapping[TensorId, TensorId]) -> Iterator[TensorId]:
    """The inputs that the kernel reads only at the element it is about to write: the result may take their memory.

    Such are the epilogue's operands of the output's own shape, the primary of a map and the background of a gather,
    unless the kernel reads the same memory in any other way as well.
    """
    readers = [a for a in planned.arguments if a.tensor is not None and not a.written]
    elementwise = {s.access.name for op in planned.epilogue for s in op.operands if s.access and s.access.same}
    primary = planned.kernel.parameters.get("primary")
    if isinstance(primary, Access) and primary.same:
        elementwise.add(primary.name)
    background = planned.kernel.parameters.get("background")
    if isinstance(background, Argument):
        elementwise.add(background.name)
    for argument in readers:
        assert argument.tensor is not None
        alone = sum(root[argument.tensor] == root[o.tensor] for o in readers if o.tensor is not None) == 1
        if argument.name in elementwise and alone:
            yield argument.tensor
