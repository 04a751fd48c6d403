"""Sums in shares: what one kernel leaves for another to add up."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.ir import Node


@dataclass(frozen=True)
class Shares:
    """``count`` shares of what ``node`` computes, which has no epilogue, one after the other along the first axis."""

    node: Node
    count: int

    def __repr__(self) -> str:
        """Without the tensors of the node, which are no part of :attr:`Request.signature`."""
        return f"Shares({self.node.kind!r}, {self.node.attributes!r}, {self.count})"


@dataclass(frozen=True)
class Join:
    """``count`` shares as one, by a function of :class:`Reduce`, and that divided by a number."""

    count: int
    function: str = "sum"
    divided_by: int = 1
