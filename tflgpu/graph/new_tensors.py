"""Tensors that a pass adds to a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

from tflgpu.graph.ir import Array, Graph, Tensor, TensorId
from tflgpu.graph.layout import Shape


class NewTensors:
    """Tensors with ids that are not in use, in the order in which they were made.

    Attributes:
        ids: The next ids.
    """

    def __init__(self, graph: Graph) -> None:
        """graph: to which they are added."""
        self.ids = count(max(graph.tensors, default=-1) + 1)
        self._known = graph.tensors
        self._made: dict[TensorId, Tensor] = {}

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._made.values())

    def __getitem__(self, tensor: TensorId) -> Tensor:
        """Return one of these tensors or of the graph's."""
        return self._made.get(tensor) or self._known[tensor]

    def add(self, tensor: Tensor) -> Tensor:
        """``tensor`` with an id of its own."""
        made = replace(tensor, id=next(self.ids))
        return self._made.setdefault(made.id, made)

    def like(self, tensor: Tensor, shape: Shape) -> Tensor:
        """Return a tensor that a node will compute, else like another one.

        Args:
            tensor: Gives the type and the marks.
            shape: The new tensor's.
        """
        return self.add(replace(tensor, name="", shape=shape))

    def constant(self, data: Array, scale: Array | None = None) -> TensorId:
        """Return the new tensor that has these elements.

        Args:
            data: The elements. They are not copied.
            scale: By which the elements are multiplied; None for 1.
        """
        return self.add(Tensor(-1, "", data.shape, data.dtype.name, data, scale=scale)).id

    def keep(self, tensors: Iterable[Tensor]) -> None:
        """Add tensors that have ids of :attr:`ids` already.

        Args:
            tensors: Made by a function that numbers its tensors itself.
        """
        self._made |= {tensor.id: tensor for tensor in tensors}
