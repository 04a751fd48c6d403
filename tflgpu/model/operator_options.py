"""Options of operators: tables of flatbuffers that are read and written by reflection on package ``tflite``.

flatc writes ``<Table>Start``, ``<Table>Add<Field>``, ``<Table>Start<Field>Vector`` and ``<Table>End`` for
each table of the schema, so one generic encoder serves all operators, also those of later releases.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import tflite
from numpy.typing import NDArray

from tflgpu.errors import ModelError

# Option tables that are not called "<OperatorName>Options", with their operators.
_SHARED_TABLES = {
    "Conv3DOptions": "CONV_3D_TRANSPOSE",
    "L2NormOptions": "L2_NORMALIZATION",
    "MaximumMinimumOptions": "MAXIMUM MINIMUM",
    "Pool2DOptions": "AVERAGE_POOL_2D L2_POOL_2D MAX_POOL_2D",
    "RandomOptions": "MULTINOMIAL RANDOM_STANDARD_NORMAL RANDOM_UNIFORM",
    "ReducerOptions": "MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD SUM",
    "SequenceRNNOptions": "UNIDIRECTIONAL_SEQUENCE_RNN",
}
_OPTIONS_BY_OP = {code: table for table, codes in _SHARED_TABLES.items() for code in codes.split()}
# The generated code has only the width of an enum field. Fields of one name have one enum in all tables.
_ENUM_BY_FIELD: dict[str, Any] = {
    "algorithm": tflite.RngAlgorithm,
    "combiner": tflite.CombinerType,
    "compare_type": tflite.StablehloComparisonType,
    "comparison_direction": tflite.StablehloComparisonDirection,
    "composite_attributes_format": tflite.CustomOptionsFormat,
    "fused_activation_function": tflite.ActivationFunctionType,
    "idx_out_type": tflite.TensorType,
    "in_data_type": tflite.TensorType,
    "kernel_type": tflite.LSTMKernelType,
    "key_dtype": tflite.TensorType,
    "mode": tflite.MirrorPadMode,
    "out_data_type": tflite.TensorType,
    "out_type": tflite.TensorType,
    "output_type": tflite.TensorType,
    "padding": tflite.Padding,
    "quantized_bias_type": tflite.TensorType,
    "reduce_function": tflite.ReduceWindowFunction,
    "type": tflite.LSHProjectionType,
    "value_dtype": tflite.TensorType,
    "weights_format": tflite.FullyConnectedOptionsWeightsFormat,
}

_FLOAT_VECTORS = {("BucketizeOptions", "Boundaries")}  # every other option vector holds integers or bools


def enumerators(enum: Any) -> dict[str, int]:
    """Return names and values of an enum.

    Args:
        enum: A class of integer constants that flatc wrote.
    """
    return {name: value for name, value in vars(enum).items() if not name.startswith("_")}


BUILTINS = {name: code for name, code in enumerators(tflite.BuiltinOperator).items() if name != "CUSTOM"}

_OPTION_TABLES = {
    table.lower(): table
    for table in chain(enumerators(tflite.BuiltinOptions), enumerators(tflite.BuiltinOptions2))
    if table != "NONE"
}


class _Field(NamedTuple):
    """One field of an option table, as the generated builder functions show it."""

    add: Any  # the generated <Table>Add<Field>(builder, value)
    slot: str  # scalar kind in numpy's spelling ("int32", "float32", "bool"), "offset" for a string
    vector_dtype: np.dtype[Any] | None


class _Recorder:
    """Stands in for a flatbuffers builder and keeps the one call that a generated function makes on it."""

    def __init__(self) -> None:
        self.method = ""
        self.arguments: tuple[Any, ...] = ()

    def __getattr__(self, method: str) -> Any:
        def record(*arguments: Any) -> None:
            self.method, self.arguments = method, arguments

        return record


@cache
def _fields(table: str) -> dict[str, _Field]:
    """Return the fields of option table ``table`` by their snake_case schema name."""
    prefix = f"{table}Add"
    fields = {}
    for function in vars(tflite):
        if not function.startswith(prefix):
            continue
        camel = function.removeprefix(prefix)
        add = getattr(tflite, function)
        recorder = _Recorder()
        add(recorder, 0)
        slot = recorder.method.removeprefix("Prepend").removesuffix("Slot").lower()
        vector_dtype = None
        if start := getattr(tflite, f"{table}Start{camel}Vector", None):
            start(recorder, 0)
            width = recorder.arguments[0]
            kind = "f" if (table, camel) in _FLOAT_VECTORS else "u" if width == 1 else "i"
            vector_dtype = np.dtype(f"<{kind}{width}")
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", camel).lower()
        fields[snake] = _Field(add, "offset" if slot.startswith("uoffset") else slot, vector_dtype)
    return fields


def options_table(code: str) -> str | None:
    """Return the name of the option table of a builtin operator; None where the schema has none.

    Args:
        code: The operator's.
    """
    return _OPTIONS_BY_OP.get(code) or _OPTION_TABLES.get(f"{code.replace('_', '')}options".lower())


def _vector_value(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    array = np.asarray(value, dtype)
    if array.ndim != 1 or (dtype.kind != "f" and not np.array_equal(array, np.asarray(value))):
        raise ValueError(f"not a list of {dtype.name} values")
    return array


def _scalar_value(value: Any, slot: str, enum: Any) -> int | float | str:
    if slot == "offset":
        if not isinstance(value, str):
            raise TypeError("not a string")
        return value
    if enum is not None and isinstance(value, str):
        names = enumerators(enum)
        if value.upper() not in names:
            raise ValueError(f"not one of {', '.join(names)}")
        return names[value.upper()]
    if slot.startswith("float"):
        return float(value)
    integer = int(value) if isinstance(value, np.bool_) else operator.index(value)
    limits = (0, 1) if slot == "bool" else (np.iinfo(slot).min, np.iinfo(slot).max)
    if not limits[0] <= integer <= limits[1]:
        raise ValueError(f"outside of {slot}")
    return integer


def checked_options(code: str, options: Mapping[str, object]) -> dict[str, Any]:
    """Return options with enums as numbers and vectors as arrays, as :func:`write_options` takes them.

    Args:
        code: The operator's.
        options: By field name; enums also by their names.

    Raises:
        ValueError: The operator has no such option, or its value does not fit.
    """
    table = options_table(code) if code in BUILTINS else None
    fields = _fields(table) if table else {}
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in fields:
            valid = ", ".join(sorted(fields)) or "none"
            raise ValueError(f"{code} has no option {name!r}; valid options: {valid}")
        field = fields[name]
        try:
            if field.vector_dtype is not None:
                values[name] = _vector_value(value, field.vector_dtype)
            else:
                values[name] = _scalar_value(value, field.slot, _ENUM_BY_FIELD.get(name))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{code} option {name}={value!r}: {error}") from error
    return values


def write_options(builder: Any, table: str, options: Mapping[str, Any]) -> int:
    """Write an option table, and return its offset. Fields that are left out keep the schema's defaults.

    Args:
        builder: Of the package flatbuffers.
        table: The table's name in the schema.
        options: Returned by :func:`checked_options`.
    """
    values = {}
    for name, value in options.items():  # strings and vectors must be complete before their table is started
        if isinstance(value, np.ndarray):
            values[name] = builder.CreateNumpyVector(value)
        elif isinstance(value, str):
            values[name] = builder.CreateString(value)
        else:
            values[name] = value
    getattr(tflite, f"{table}Start")(builder)
    for name, value in values.items():
        _fields(table)[name].add(builder, value)
    return int(getattr(tflite, f"{table}End")(builder))


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
