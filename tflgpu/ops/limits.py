"""Limits of a device and its kernels: some lack types, and all compute places in memory in ints."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import LANES, Shape, geometry_of
from tflgpu.ops.declaration import Site

GREATEST_INT = 2**31 - 1

# Elements of a tensor that an operator makes of a few numbers. As floats they take 1 GiB.
MOST_MADE = 1 << 28

# How many times the elements of its inputs an operator's result may have beyond that.
GREATEST_GROWTH = 16

# Pixels past the last one that a kernel may compute, and not store, to fill its last block.
BLOCK_MARGIN = 16


def storage_reasons(what: str, shape: Shape) -> Iterator[str]:
    """Yield the obstacle that a tensor has more elements in memory than kernels can count.

    Args:
        what: The tensor's name, for the message.
        shape: The tensor's.
    """
    elements = geometry_of(shape).elements + 4 * LANES  # with room for a 16-lane access at the last vec4
    if elements > GREATEST_INT:
        yield f"its {what} of shape {list(shape)} has {elements} elements in memory; kernels count to {GREATEST_INT}"


def made_reasons(elements: int) -> Iterator[str]:
    """Yield the obstacle that an operator makes a large tensor of next to nothing.

    Args:
        elements: The tensor's.
    """
    if elements > MOST_MADE:
        yield f"its result has {elements} elements; at most {MOST_MADE} are made on the device"


def growth_reasons(site: Site, tensors: Sequence[Tensor]) -> Iterator[str]:
    """Yield the obstacle that an operator makes much of little: a file of a few bytes must not take all memory.

    Args:
        site: The operator.
        tensors: Those that its nodes compute.
    """
    given = sum(t.size for t in site.inputs if t is not None)
    largest = max((geometry_of(t.shape).elements for t in tensors if not t.is_constant), default=0)
    if largest > GREATEST_GROWTH * given:
        yield from made_reasons(largest)


def site_reasons(site: Site, missing_types: Collection[str]) -> Iterator[str]:
    """Yield obstacles in the inputs and the declared types of an operator.

    Args:
        site: The operator.
        missing_types: Element types that the device does not have.
    """
    inputs = [t for t in site.inputs if t is not None]
    yield from _type_reasons((*(t.dtype for t in inputs if not t.is_constant), *site.output_types), missing_types)
    for tensor in inputs:
        yield from storage_reasons("input", tensor.shape)


def result_reasons(tensors: Sequence[Tensor], missing_types: Collection[str]) -> Iterator[str]:
    """Yield obstacles in the tensors that an operator's nodes compute; of those that are too large, the last one.

    Args:
        tensors: These tensors.
        missing_types: Element types that the device does not have.
    """
    yield from [reason for t in tensors for reason in storage_reasons("result", t.shape)][-1:]
    yield from _type_reasons((t.dtype for t in tensors), missing_types)


def _type_reasons(dtypes: Iterable[str], missing_types: Collection[str]) -> Iterator[str]:
    for dtype in sorted(set(dtypes) & set(missing_types)):
        yield f"the device does not compute with {dtype}"
