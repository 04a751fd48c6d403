"""The minimum cut of a network, by augmenting paths."""

from __future__ import annotations

from collections import deque

SOURCE, SINK = 0, 1

ENDLESS = 1 << 60


class Network:
    """Edges with capacities between numbered nodes, of which :data:`SOURCE` and :data:`SINK` are two."""

    def __init__(self) -> None:
        self._left: list[dict[int, int]] = [{}, {}]  # of each node: the capacity that is left to its neighbours

    def node(self) -> int:
        """The number of a new node."""
        self._left.append({})
        return len(self._left) - 1

    def edge(self, begin: int, end: int, capacity: int) -> None:
        """Add capacity from one node to another."""
        if begin != end and capacity > 0:
            self._left[begin][end] = self._left[begin].get(end, 0) + capacity
            self._left[end].setdefault(begin, 0)

    def sink_side(self) -> frozenset[int]:
        """The nodes on the sink's side of a cut of the least capacity: as few as possible.

        The network is used up.
        """
        while (path := self._path()) is not None:
            flow = min(self._left[a][b] for a, b in path)
            for a, b in path:
                self._left[a][b] -= flow
                self._left[b][a] += flow
        found, waiting = {SINK}, [SINK]
        while waiting:
            node = waiting.pop()
            before = [n for n in self._left[node] if n not in found and self._left[n][node] > 0]
            found.update(before)
            waiting += before
        return frozenset(found)

    def _path(self) -> list[tuple[int, int]] | None:
        """A shortest path from source to sink with capacity left."""
        came_from, waiting = {SOURCE: SOURCE}, deque([SOURCE])
        while waiting:
            node = waiting.popleft()
            for following, left in self._left[node].items():
                if left > 0 and following not in came_from:
                    came_from[following] = node
                    waiting.append(following)
            if SINK in came_from:
                break
        if SINK not in came_from:
            return None
        path, node = list[tuple[int, int]](), SINK
        while node != SOURCE:
            path.append((came_from[node], node))
            node = came_from[node]
        return path
