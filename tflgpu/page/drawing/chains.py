"""Long chains of kernels in a graph: what a reader takes in at once.

An edge beside a longer path, such as a residual connection, does not end a chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

Edge = tuple[int, int]


def transitive_reduction(sources: Mapping[int, Sequence[int]]) -> set[Edge]:
    """Return the edges beside which there is no longer path.

    Args:
        sources: Where the edges to each node come from; the nodes in an order in which these come first.
    """
    ancestors: dict[int, int] = {}  # as the bits of a number
    kept: set[Edge] = set()
    for node, before in sources.items():
        through = 0
        for source in before:
            through |= ancestors[source]
        kept.update((source, node) for source in before if not through >> source & 1)
        for source in before:
            through |= 1 << source
        ancestors[node] = through
    return kept


def chains_of(nodes: Sequence[int], edges: set[Edge]) -> list[list[int]]:
    """Return the nodes in chains: each reads the one before it alone, which nothing else reads.

    Args:
        nodes: In an order in which every edge leads to a later one.
        edges: Pairs of nodes.
    """
    leaving, entering = (Counter(edge[end] for edge in edges) for end in (0, 1))
    after = {a: b for a, b in edges if leaving[a] == 1 and entering[b] == 1}
    inner = set(after.values())
    chains = []
    for node in nodes:
        if node not in inner:
            chain = [node]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains.append(chain)
    return chains
