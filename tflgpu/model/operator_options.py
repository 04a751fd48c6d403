"""An operator's options: the fields of its flatbuffer table by name, defaults filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import tflite

from tflgpu.errors import ModelError
from tflgpu.model.writer_options import options_table


class _EmptyTable:
    """Stands in for an absent flatbuffer table: no field is present, so each accessor gives its default."""

    @staticmethod
    def Offset(_: int) -> int:  # noqa: N802 - the decoder calls it so
        return 0


@cache
def _option_fields(table: type) -> tuple[tuple[str, str], ...]:
    """(snake_case name, accessor) of each field of an options class; a vector has a numpy accessor."""
    names = [n for n in vars(table) if not n.startswith(("_", "GetRootAs")) and n != "Init"]
    fields = [n for n in names if not re.search(r"(AsNumpy|Length|IsNone|BufferHasIdentifier)$", n)]
    return tuple(
        (re.sub(r"(?<!^)(?=[A-Z])", "_", n).lower(), f"{n}AsNumpy" if f"{n}AsNumpy" in names else n) for n in fields
    )


def read_options(operator: Any, index: int, code: str) -> Mapping[str, Any]:
    """Return the options of a builtin operator; empty if it has no table, for which LiteRT takes zeros.

    Args:
        operator: A table Operator of the package ``tflite``.
        index: The operator's, for messages.
        code: The operator's.

    Raises:
        ModelError: The table is that of another operator.
    """
    expected = options_table(code)
    for which in ("BuiltinOptions", "BuiltinOptions2"):
        number = getattr(operator, f"{which}Type")()
        name = _table_name(which, number)
        if name is None:
            raise ModelError(f"operator {index} {code} has options of unknown type {number}")
        if name != "NONE" and expected is not None:
            if name != expected:
                raise ModelError(f"operator {index} {code} has options of type {name}; {expected} was expected")
            options = getattr(tflite, name)
            table = options()
            union = getattr(operator, which)()
            table._tab = union or _EmptyTable()
            if union is not None:
                table.Init(union.Bytes, union.Pos)
            return {field: _plain(getattr(table, get)(), get) for field, get in _option_fields(options)}
    return {}


@cache
def _table_name(union: str, number: int) -> str | None:
    return {v: n for n, v in vars(getattr(tflite, union)).items() if not n.startswith("_")}.get(number)


def _plain(value: Any, accessor: str) -> Any:
    if accessor.endswith("AsNumpy"):  # 0 stands for a vector that is absent
        return tuple(value.tolist()) if isinstance(value, np.ndarray) else ()
    return value


def map_of_options(data: bytes) -> Mapping[str, Any]:
    """Return the map of FlexBuffers that a custom operator has for options; empty if it is none, or damaged.

    Args:
        data: The operator's options.
    """
    from flatbuffers import flexbuffers

    try:
        options = flexbuffers.Loads(bytearray(data))
    except Exception:  # the decoder trusts offsets, so damage can make it raise almost any error
        return {}
    return options if isinstance(options, dict) else {}
