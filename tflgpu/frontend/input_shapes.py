"""Other input shapes than the file declares: what ``Options.shapes.batch`` and ``Options.shapes.inputs`` ask for."""

from __future__ import annotations

from collections.abc import Mapping

from tflgpu.frontend.entry_point import EntryPoint
from tflgpu.frontend.lowered import Lowered
from tflgpu.graph.layout import Shape
from tflgpu.options import Options


def requested_shapes(entry: EntryPoint, options: Options) -> Mapping[int, Shape]:
    """Return the input shapes that differ from the file's, by the file's tensor index.

    Args:
        entry: The entry point.
        options: Shapes by name win over the batch.

    Raises:
        ValueError: An input is not there, a rank differs, or a size is below 1.
    """
    given = dict(options.shapes.inputs or {})
    shapes: dict[int, Shape] = {}
    for name, tensor in entry.inputs:
        requested = given.pop(name, None)
        shape = None if requested is None else tuple(requested)
        if shape is None and options.shapes.batch is not None:
            if not tensor.shape:
                raise ValueError(f"Options.shapes.batch is {options.shapes.batch}, but input {name!r} has no axes")
            shape = (options.shapes.batch, *tensor.shape[1:])
        if shape is None or shape == tensor.shape:
            continue
        if len(shape) != len(tensor.shape) or min(shape, default=1) < 1:
            raise ValueError(
                f"Options.shapes.inputs has {list(shape)} for {name!r}; {len(tensor.shape)} positive sizes were "
                f"expected, the file has {list(tensor.signature)}"
            )
        shapes[tensor.index] = shape
    if given:
        known = ", ".join(repr(name) for name, _ in entry.inputs)
        raise ValueError(f"Options.shapes.inputs names {sorted(given)}; the model has the inputs {known}")
    return shapes


def check_batch(lowered: Lowered, batch: int) -> None:
    """Accept a model that carries the batch of its inputs through to every output.

    Some files have a batch of 1 written into the constants of an operator; what such a model computes of a larger one
    is not a batch of results.

    Args:
        lowered: The model, lowered with this batch.
        batch: The batch of the options.

    Raises:
        ValueError: An output has another batch.
    """
    declared_batch = max(1, lowered.inputs[0][1].shape[0])
    for (name, tensor), shape in zip(lowered.outputs, lowered.output_shapes, strict=True):
        declared = tensor.shape[:1]
        if not shape or not declared or shape[0] != batch * max(1, declared[0] // declared_batch):
            raise ValueError(
                f"Options.shapes.batch is {batch}, but output {name!r} then has shape {list(shape)}: an operator of "
                "this model has its batch size as a constant; run the images one by one"
            )
