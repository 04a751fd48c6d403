"""The subject of passes for a device: a graph, its storage, and the chooser of kernels and of fusions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tflgpu.graph.ir import Graph, Node, TensorId, verify
from tflgpu.graph.layout import keeps_bytes
from tflgpu.graph.rewrite_rules import Rule, rewrite
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Chooser, Request, first_ranked
from tflgpu.target import Target, is_exact_in_half

Decisions = Mapping[tuple[int, ...], bool]
"""By the model's operators of a group of nodes, whether one kernel computes them."""


@dataclass(frozen=True)
class Planning:
    """A graph on its way to a plan.

    storage: of every activation; empty until a pass assigns it. chooser: decides on tile configurations and fusions.
    group_sizes: most work-items of a group of the kernels that compute some tensors, where those are fewer than the
    device's limit. decisions: the fusions on which the chooser decided against the cost model.
    """

    graph: Graph
    target: Target
    storage: Mapping[TensorId, Storage] = field(default_factory=dict)
    chooser: Chooser = first_ranked
    group_sizes: Mapping[TensorId, int] = field(default_factory=dict)
    decisions: Decisions = field(default_factory=dict)

    def target_of(self, tensor: TensorId) -> Target:
        """Return the device for the kernel that computes a tensor: its groups may have fewer work-items.

        Args:
            tensor: The output of a node.
        """
        size = self.group_sizes.get(tensor)
        return self.target if size is None else self.target.with_groups(size)

    @property
    def fusing_target(self) -> Target:
        """The device with the narrowest of these groups, for fused nodes, which cannot be taken apart again."""
        return self.target.with_groups(min(self.group_sizes.values())) if self.group_sizes else self.target

    def request(self, node: Node) -> Request:
        """For a pass that asks for a node's kernels: the cost model chooses, and groups may be as wide as any."""
        return Request(node, self.graph, self.storage, self.target)

    def lowering_request(self, node: Node, chooser: Chooser) -> Request:
        """For the kernel of a node: constants are as precise as what they meet."""
        target = self.target_of(node.output)
        if any(self.graph[t].precise for t in (*node.inputs, node.output)):
            target = replace(target, arithmetic="float")
            if not _half_holds_constants(self.graph, node):
                target = replace(target, storage="float")
        return Request(node, self.graph, self.storage, target, chooser)

    def with_graph(self, graph: Graph, storage: Mapping[TensorId, Storage] = MappingProxyType({})) -> Planning:
        """Return the same with another graph.

        Args:
            graph: What a pass has made of this one's.
            storage: That of new tensors, and of those whose storage changes.
        """
        return replace(self, graph=graph, storage={**self.storage, **storage})

    def rewritten(self, *rules: Rule, storage: Mapping[TensorId, Storage] = MappingProxyType({})) -> Planning:
        """Return the same after rules, until none of them can be applied any more.

        Args:
            *rules: In the order in which they are tried at a node.
            storage: As that of :meth:`with_graph`; it is read after all of them.
        """
        return self.with_graph(rewrite(self.graph, rules).graph, storage)

    def verify(self) -> None:
        """Check the rules that every pass must keep. An AssertionError is a bug in the pass before."""
        verify(self.graph, states_are_alone=False)  # a pass lets states share what nodes compute
        activations = {*self.graph.given, *self.graph.producer}
        if self.storage and (missing := activations - self.storage.keys()):
            raise AssertionError(f"tensors {sorted(missing)} have no storage")
        for node in self.graph.of_kind("reshape"):
            if self.storage and node.is_view and not self._keeps_order(node):
                raise AssertionError(f"the elements of tensor {node.inputs[0]} lie in another order than {node.output}")

    def _keeps_order(self, view: Node) -> bool:
        """Whether elements lie in memory in the same order before and after a view."""
        ends = view.inputs[0], view.output
        return keeps_bytes(*(self.graph[t].shape for t in ends)) or any(self.storage[t].linear for t in ends)


def _half_holds_constants(graph: Graph, node: Node) -> bool:
    """Whether half precision holds every number of a node's weights and other large constants."""
    constants = ((k, graph[t].data) for k, t in enumerate(node.inputs))
    # Weights are stored in half even if they are a vector or a single number.
    large = (
        data
        for k, data in constants
        if data is not None
        and (data.size > max(data.shape, default=1) or (data.ndim > 1 and k not in node.epilogue_inputs))
    )
    return all(is_exact_in_half(data) for data in large)


ENDLESS = 1e9  # cycles between two kernels, so that one is faster than any two

Fuse = Callable[[Graph, Mapping[TensorId, Storage], Target], Graph]


def fuse_nodes(fuse: Fuse, planning: Planning) -> Planning:
    """Put one node for several wherever a kernel computes them faster so; it keeps the tensor that it writes.

    The chooser decides on the fusions that the cost model proposes; one that measures is also asked about those that
    seem to be slower.
    """
    target = planning.fusing_target
    proposed = fuse(planning.graph, planning.storage, target)
    if planning.chooser is first_ranked:
        return replace(planning, graph=proposed)
    planning = _chosen(planning, proposed, seems_faster=True)
    costs = replace(target.cost_model, launch_latency=ENDLESS, interval_latency=ENDLESS)
    possible = fuse(planning.graph, planning.storage, replace(target, cost_model=costs))
    return _chosen(planning, possible, seems_faster=False)


def _chosen(planning: Planning, fused: Graph, *, seems_faster: bool) -> Planning:
    """Take ``fused``, but for the nodes that the chooser prefers as they are."""
    apart, target, against = planning.graph, planning.fusing_target, dict(planning.decisions)
    kept = dict[TensorId, tuple[Node, ...]]()
    for output, parts in fused_groups(apart, fused).items():
        node = fused.producer[output]
        is_one = Request(node, fused, planning.storage, target, planning.chooser, parts).chooses_fusion(seems_faster)
        if not is_one:
            kept[output] = parts
        if is_one != seems_faster:
            against.setdefault(node.sources, is_one)
    graph = fused.with_replaced(kept, apart.tensors.values())
    return replace(planning, graph=graph, decisions=against)


def fused_groups(apart: Graph, fused: Graph) -> dict[TensorId, tuple[Node, ...]]:
    """Return the nodes whose place each fused node takes, by what that writes.

    Args:
        apart: The graph before fusions; the nodes of a group are in its order.
        fused: The same graph after them.
    """
    last: dict[TensorId, TensorId] = {}  # of its group, what a node's last one writes
    for node in reversed(apart.nodes):
        if node.output not in fused.producer:
            (last[node.output],) = {last[reader.output] for reader in apart.consumers[node.output]}
        elif fused.producer[node.output] is not node:
            last[node.output] = node.output
    groups: dict[TensorId, tuple[Node, ...]] = {}
    for tensor in reversed(last):
        groups[last[tensor]] = (*groups.get(last[tensor], ()), apart.producer[tensor])
    return groups
