"""What the passes for a device rewrite: a graph, the storage of its activations, and what kernels are chosen by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tflgpu.graph.ir import Graph, Node, Tensor, TensorId, verify
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Chooser, Request, first_ranked
from tflgpu.target import Target, is_exact_in_half

Decisions = Mapping[tuple[int, ...], bool]
"""By the model's operators of a group of nodes, whether one kernel computes them."""


@dataclass(frozen=True)
class Planning:
    """A graph on its way to a plan.

    storage: of every activation; empty until a pass assigns it. chooser: decides on tile configurations and fusions.
    fused_items: the most work-items of a group that computes a fused node, which cannot be taken apart again; None for
    what the device allows. decisions: the fusions on which the chooser decided against the cost model.
    """

    graph: Graph
    target: Target
    storage: Mapping[TensorId, Storage] = field(default_factory=dict)
    chooser: Chooser = first_ranked
    fused_items: int | None = None
    decisions: Decisions = field(default_factory=dict)

    @property
    def fusing_target(self) -> Target:
        """The device for kernels of fused nodes."""
        return self.target if self.fused_items is None else self.target.with_groups(self.fused_items)

    def request(self, node: Node) -> Request:
        """For a pass that asks for a node's kernels: the cost model chooses, and groups may be as wide as any."""
        return Request(node, self.graph, self.storage, self.target)

    def lowering_request(self, node: Node) -> Request:
        """For the kernel of a node: constants are as precise as what they meet, groups as the compiler allows them."""
        target = self.target
        if any(self.graph[t].precise for t in (*node.inputs, node.output)):
            target = replace(target, arithmetic="float")
            if not _half_holds_constants(self.graph, node):
                target = replace(target, storage="float")
        request = Request(node, self.graph, self.storage, target, self.chooser)
        while self.target.group_sizes and (narrower := target.allowed(request.key)) != target:
            target = narrower
            request = replace(request, target=target)
        return request

    def with_nodes(
        self, nodes: Iterable[Node], tensors: Iterable[Tensor] = (), storage: Mapping[TensorId, Storage] | None = None
    ) -> Planning:
        """The same with other nodes. tensors, storage: what is new."""
        graph = self.graph.with_nodes(nodes, tensors)
        return replace(self, graph=graph, storage={**self.storage, **(storage or {})})

    def verify(self) -> None:
        """Check the rules that every pass must keep. An AssertionError is a bug in the pass before."""
        verify(self.graph)
        activations = {*self.graph.given, *self.graph.producer}
        if self.storage and (missing := activations - self.storage.keys()):
            raise AssertionError(f"tensors {sorted(missing)} have no storage")


def _half_holds_constants(graph: Graph, node: Node) -> bool:
    """Whether half precision holds every number of a node's weights and other large constants."""
    constants = (graph[t].data for t in node.inputs)
    large = (data for data in constants if data is not None and data.size > max(data.shape, default=1))
    return all(is_exact_in_half(data) for data in large)
