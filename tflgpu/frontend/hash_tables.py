"""Hash tables of a file, and why LiteRT must keep one of them for all signatures.

LiteRT fills a table once, and ignores later values. So the pieces that it runs may have a table of their own each if
the same constants fill it before every look-up. Any other table depends on who came first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tflgpu.model.checks import called_by
from tflgpu.model.model import FileTensor, Model, Operator

TABLE_OPERATORS = ("HASHTABLE", "HASHTABLE_IMPORT", "HASHTABLE_FIND", "HASHTABLE_SIZE")


@dataclass
class HashTable:
    """Facts about a table from all of the file.

    entries: the subgraphs of signatures that use it. contents: what fills it. fault: why one table must serve all.
    """

    entries: set[int] = field(default_factory=set)
    contents: set[tuple[bytes, bytes]] = field(default_factory=set)
    fault: str = ""


def hash_tables(model: Model, entries: Collection[int]) -> Mapping[int, HashTable]:
    """Return the tables of a file by their number.

    Args:
        model: The file.
        entries: The subgraphs of its signatures.
    """
    search = _Search(model)
    for entry in entries:
        search.follow(entry, entry, set(), is_certain=True)
    for table in search.tables.values():
        if len(table.contents) > 1:
            table.fault = "it is filled with several contents, of which LiteRT keeps the first"
        table.fault = table.fault or search.fault
    return search.tables


class _Search:
    def __init__(self, model: Model) -> None:
        self._model = model
        self.tables: dict[int, HashTable] = {}
        self.fault = ""  # of all tables
        self._seen: set[tuple[int, int, frozenset[int], bool]] = set()

    def follow(self, entry: int, number: int, filled: set[int], *, is_certain: bool) -> None:
        """Note what a subgraph does with tables.

        Args:
            entry: The subgraph of the signature that is run.
            number: Of the subgraph.
            filled: The tables that have values by now; gets more.
            is_certain: Whether each run of the signature comes here.
        """
        place = entry, number, frozenset(filled), is_certain
        if place in self._seen:
            return
        self._seen.add(place)
        handles: dict[int, int] = {}
        for operator in self._model.subgraphs[number].operators:
            if operator.code == "HASHTABLE":
                handles[operator.outputs[0]] = operator.options.get("table_id", 0)
            elif operator.code in TABLE_OPERATORS:
                self._use(entry, number, operator, handles.get(operator.inputs[0]), filled, is_certain)
            elif operator.code == "CALL_ONCE":
                for called in called_by(operator):
                    self.follow(entry, called, filled, is_certain=is_certain)
            else:
                for called in called_by(operator):
                    self.follow(entry, called, set(filled), is_certain=False)

    def _use(
        self, entry: int, number: int, operator: Operator, key: int | None, filled: set[int], is_certain: bool
    ) -> None:
        if key is None:
            self.fault = "the handle of a table does not come from a HASHTABLE that is known"
            return
        table = self.tables.setdefault(key, HashTable())
        table.entries.add(entry)
        if operator.code != "HASHTABLE_IMPORT":
            if key not in filled:
                table.fault = "a signature looks something up before it fills it"
            return
        keys, values = (self._model.subgraphs[number].tensors[t] for t in operator.inputs[1:3])
        if keys.data is None or values.data is None:
            table.fault = "what fills it is no constant"
        elif not is_certain:
            table.fault = "a loop or branch fills it"
        else:
            table.contents.add((_content(keys), _content(values)))
        filled.add(key)


def _content(tensor: FileTensor) -> bytes:
    return b"" if tensor.data is None else tensor.data.tobytes()
