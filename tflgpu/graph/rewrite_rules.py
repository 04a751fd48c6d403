"""Rules that rewrite a graph: a pattern of nodes, a condition, and the nodes that take the place of the last of them.

:func:`rewrite` goes through the nodes in execution order and applies the first rule that fits, again and again until
none does. A rule sees the graph as the rules before it have left it, and looks from a node at what computes its inputs.
A decision about more than such a pattern, such as a region of nodes or a cut through the graph, is no rule but a
function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from tflgpu.graph.ir import Array, Graph, Node, Tensor, TensorId, joint_sources
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


# Times that rules fire for a node on average, from which on they are taken to go round in circles.
MOST_FIRINGS = 100


class Draft:
    """A graph that is being rewritten. Its answers are those of the graph as it is by now.

    Attributes:
        new: The tensors that rules make.
        slots: What nodes compute, in execution order. A slot has a node of the graph, or those that took its place.
        has_fewer_readers: Whether a tensor that is still read has lost a reader, so that it may be read by one alone.
    """

    def __init__(self, graph: Graph) -> None:
        self.new, self._graph = NewTensors(graph), graph
        self.wanted = graph.wanted
        self.producer = dict(graph.producer)
        self.consumers = {tensor: list(nodes) for tensor, nodes in graph.consumers.items()}
        self.slots = [[node.output] for node in graph.nodes]
        self.has_fewer_readers = False
        self._place = {node.output: place for place, node in enumerate(graph.nodes)}
        self._before: dict[TensorId, int] = {}  # how often tensors were read before a change

    def __getitem__(self, tensor: TensorId) -> Tensor:
        return self.new[tensor]

    def constant(self, tensor: TensorId) -> Array | None:
        """Return the elements of a tensor; None if they are computed.

        Args:
            tensor: Any tensor of the graph.
        """
        return self[tensor].data

    def sole_consumer(self, tensor: TensorId) -> Node | None:
        """Return the one node that reads a tensor.

        Args:
            tensor: Any tensor of the graph.

        Returns:
            None if it is read never or several times, or is wanted.
        """
        readers = self.consumers.get(tensor, ())
        return readers[0] if len(readers) == 1 and tensor not in self.wanted else None

    def place(self, tensor: TensorId) -> int:
        """Return the place in the order of execution of the node that computes a tensor.

        Args:
            tensor: The output of a node.
        """
        return self._place[tensor]

    def replace(self, node: Node, nodes: Sequence[Node]) -> None:
        """Put nodes in the place of another one. What nothing reads then goes.

        Args:
            node: A node of the graph.
            nodes: The new ones in their order; the last one has the same output.
        """
        place = self._place[node.output]
        slot = self.slots[place]
        at = slot.index(node.output)
        slot[at : at + 1] = [each.output for each in nodes]
        self._unlink(node)
        for each in nodes:
            self._place[each.output] = place
            self._link(each)
        self._drop_unread(node.inputs)
        self._count_readers()

    def read_instead(self, node: Node, tensor: TensorId) -> None:
        """Let all that reads the output of a node read another tensor, and drop the node.

        Args:
            node: A node of the graph.
            tensor: Has the same elements, and is computed before.
        """
        for reader in {id(each): each for each in self.consumers.get(node.output, ())}.values():
            self._unlink(reader)
            self._link(replace(reader, inputs=tuple(tensor if t == node.output else t for t in reader.inputs)))
        self._drop_unread((node.output,))
        self._count_readers()

    def graph(self) -> Graph:
        """Return what the graph has become."""
        order = (self.producer.get(tensor) for slot in self.slots for tensor in slot)
        return self._graph.with_nodes((node for node in order if node is not None), self.new)

    def _link(self, node: Node) -> None:
        self.producer.update(dict.fromkeys(node.outputs, node))
        for tensor in node.inputs:
            self.consumers.setdefault(tensor, []).append(node)

    def _unlink(self, node: Node) -> None:
        for tensor in node.outputs:
            del self.producer[tensor]
        for tensor in node.inputs:
            readers = self.consumers[tensor]
            self._before.setdefault(tensor, len(readers))
            del readers[next(i for i, reader in enumerate(readers) if reader is node)]

    def _drop_unread(self, tensors: Sequence[TensorId]) -> None:
        ahead = list(tensors)
        while ahead:
            node = self.producer.get(ahead.pop())
            if node is not None and not any(self.consumers.get(t) or t in self.wanted for t in node.outputs):
                self._unlink(node)
                ahead += node.inputs

    def _count_readers(self) -> None:
        changes = ((before, len(self.consumers[tensor])) for tensor, before in self._before.items())
        self.has_fewer_readers |= any(0 < now < before for before, now in changes)
        self._before.clear()


AnyGraph = Graph | Draft

Test = Callable[[Draft, Node], bool]


@dataclass(frozen=True)
class Op:
    """A pattern: a node, and by position the nodes that compute what it reads. :func:`op` makes it.

    Attributes:
        kinds: The kinds that the node may have; any if there are none.
        inputs: Patterns of the nodes that compute its first inputs; None for an input that may be anything.
        name: The name by which a match has the node.
        plain: Whether it must have no epilogue.
        alone: Whether nothing else may read its result.
        where: A condition on its attributes and tensors.
    """

    kinds: frozenset[str]
    inputs: tuple[Op | None, ...]
    name: str
    plain: bool
    alone: bool
    where: Test | None

    def takes(self, kind: str) -> bool:
        """Whether a node may be of a kind.

        Args:
            kind: The kind of a node.
        """
        return not self.kinds or kind in self.kinds

    def find(self, graph: Draft, node: Node | None, found: dict[str, Node]) -> bool:
        """Return whether the pattern fits a node.

        Args:
            graph: The node's graph.
            node: The root of the pattern; None fits nothing.
            found: Gets the nodes of the pattern by name, also some if it does not fit.
        """
        if node is None or not self.takes(node.kind) or (self.plain and node.epilogue):
            return False
        if self.alone and graph.sole_consumer(node.output) is None:
            return False
        if len(node.inputs) < len(self.inputs) or (self.where is not None and not self.where(graph, node)):
            return False
        found[self.name] = node
        pairs = zip(self.inputs, node.inputs, strict=False)
        return all(each is None or each.find(graph, graph.producer.get(t), found) for each, t in pairs)


def op(
    kinds: str = "",
    *inputs: Op | None,
    name: str = "",
    plain: bool = False,
    alone: bool = False,
    where: Test | None = None,
) -> Op:
    """Return a pattern.

    Args:
        kinds: The kinds that the node may have, by ``|``; any if there are none.
        inputs: Patterns of the nodes that compute its first inputs; None for an input that may be anything.
        name: The name by which a match has the node.
        plain: Whether it must have no epilogue.
        alone: Whether nothing else may read its result.
        where: A condition on its attributes and tensors.
    """
    return Op(frozenset(filter(None, kinds.split("|"))), inputs, name, plain, alone, where)


@dataclass(frozen=True)
class Match:
    """A place in a graph that a pattern fits.

    Attributes:
        graph: The graph, as it is by now.
        node: The last node of the pattern.
        nodes: The nodes that have names in the pattern.
    """

    graph: Draft
    node: Node
    nodes: Mapping[str, Node]

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]


# The nodes in place of the last one of a match, the tensor to be read in place of its result, or None to leave all as
# it is.
Built = Sequence[Node] | TensorId | None


@dataclass(frozen=True)
class Rule:
    """A local rewrite.

    Attributes:
        name: The name by which `tflgpu show` lists it where it fires.
        pattern: The nodes that it is about.
        build: The function that gives what takes their place.
        where: A condition on all of them.
    """

    name: str
    pattern: Op
    build: Callable[[Match], Built]
    where: Callable[[Match], bool] | None = None

    def built(self, draft: Draft, node: Node) -> Built:
        """Return the nodes that take the place of a node.

        Args:
            draft: The node's graph.
            node: A node that may be the root of the pattern.

        Returns:
            None where the rule does not fit.
        """
        found: dict[str, Node] = {}
        if not self.pattern.find(draft, node, found):
            return None
        match = Match(draft, node, found)
        return self.build(match) if self.where is None or self.where(match) else None


class Firing(NamedTuple):
    """A rule that was applied, and the model's operators that what it built computes."""

    rule: str
    sources: tuple[int, ...]


class Rewritten(NamedTuple):
    """A graph, and the rules that made it of another one, in order."""

    graph: Graph
    fired: tuple[Firing, ...] = ()


@dataclass(frozen=True)
class Rules:
    """A pass: rules in the order in which they are tried at a node."""

    each: tuple[Rule, ...]

    def __call__(self, graph: Graph) -> Graph:
        """Return the graph to which no rule can be applied any more."""
        return self.rewrite(graph).graph

    def rewrite(self, graph: Graph) -> Rewritten:
        """Return this graph, and the rules that were applied."""
        return rewrite(graph, self.each)


def rewrite(graph: Graph, rules: Sequence[Rule]) -> Rewritten:
    """Apply rules until none fits any more.

    Args:
        graph: The graph; itself is returned where no rule fits.
        rules: The rules, in the order in which they are tried at a node.

    Raises:
        AssertionError: The rules never come to an end.
    """
    draft, fired = Draft(graph), list[Firing]()
    by_kind = {kind: [r for r in rules if r.pattern.takes(kind)] for kind in {node.kind for node in graph.nodes}}
    draft.has_fewer_readers = True
    while draft.has_fewer_readers:  # what changes else concerns later nodes
        draft.has_fewer_readers = False
        for slot in draft.slots:
            at = 0
            while at < len(slot):
                node = draft.producer.get(slot[at])
                firing = None if node is None else _fire(draft, node, by_kind.get(node.kind, rules))
                if firing is None:
                    at += 1
                    continue
                fired.append(firing)
                if len(fired) > MOST_FIRINGS * len(graph.nodes):
                    raise AssertionError(f"the rule {firing.rule} is applied again and again")
    return Rewritten(draft.graph() if fired else graph, tuple(fired))


def _fire(draft: Draft, node: Node, rules: Sequence[Rule]) -> Firing | None:
    """Apply the first rule that fits a node."""
    for rule in rules:
        built = rule.built(draft, node)
        if built is None:
            continue
        if isinstance(built, TensorId):
            draft.read_instead(node, built)
            return Firing(rule.name, node.sources)
        draft.replace(node, built)
        return Firing(rule.name, joint_sources(*built))
    return None
