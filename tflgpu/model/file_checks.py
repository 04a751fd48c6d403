"""Checks of the reader beyond the schema: all that later stages, and LiteRT's kernels, take for granted.

LiteRT's kernels read operands and options without a look at whether they are there and make sense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import isfinite, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.errors import ModelError
from tflgpu.graph.layout import Shape
from tflgpu.model.model import Operator, Subgraph
from tflgpu.model.tensor_info import Quantization

# Least numbers of inputs and outputs -> builtin operators. Those that have none or any number are left out.
_LEAST: dict[tuple[int, int], str] = {
    (0, 1): "HASHTABLE VAR_HANDLE STABLEHLO_IOTA",
    (1, 0): "IF",
    (1, 1): """
        ABS ADD_N AVERAGE_POOL_2D BITCAST BUCKETIZE CAST CEIL COMPLEX_ABS CONCATENATION COS DENSIFY DEPTH_TO_SPACE
        DEQUANTIZE ELU EXP FAKE_QUANT FLOOR GELU HARD_SWISH HASHTABLE_SIZE IMAG L2_NORMALIZATION L2_POOL_2D LEAKY_RELU
        LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_NOT LOGISTIC LOG_SOFTMAX MATRIX_DIAG MAX_POOL_2D NEG PACK QUANTIZE
        RANDOM_STANDARD_NORMAL RANDOM_UNIFORM RANK READ_VARIABLE REAL RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 RESHAPE ROUND
        RSQRT SHAPE SIGN SIN SKIP_GRAM SOFTMAX SPACE_TO_DEPTH SQRT SQUARE SQUEEZE TANH UNPACK WHERE ZEROS_LIKE
        STABLEHLO_ABS STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CBRT STABLEHLO_CONCATENATE STABLEHLO_CONVERT STABLEHLO_COSINE
        STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_LOGISTIC STABLEHLO_NEGATE STABLEHLO_RESHAPE
        STABLEHLO_RSQRT STABLEHLO_SLICE STABLEHLO_SORT STABLEHLO_TANH STABLEHLO_TRANSPOSE
    """,
    (1, 2): "UNIQUE STABLEHLO_RNG_BIT_GENERATOR",
    (2, 0): "ASSIGN_VARIABLE",
    (2, 1): """
        ADD ARG_MAX ARG_MIN ATAN2 BATCH_MATMUL BITWISE_XOR BROADCAST_ARGS BROADCAST_TO CONV_2D CONV_3D CUMSUM
        DEPTHWISE_CONV_2D DIV EMBEDDING_LOOKUP EQUAL EXPAND_DIMS FILL FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER
        GATHER_ND GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR LSH_PROJECTION MATRIX_SET_DIAG MAXIMUM
        MEAN MINIMUM MIRROR_PAD MUL MULTINOMIAL NOT_EQUAL PAD POW PRELU REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN
        REDUCE_PROD RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_SEQUENCE REVERSE_V2 RFFT2D RIGHT_SHIFT SEGMENT_SUM
        SPLIT SQUARED_DIFFERENCE SUB SUM TILE TRANSPOSE STABLEHLO_ADD STABLEHLO_AND STABLEHLO_COMPARE
        STABLEHLO_CONVOLUTION STABLEHLO_DIVIDE STABLEHLO_DOT_GENERAL STABLEHLO_DYNAMIC_SLICE STABLEHLO_GATHER
        STABLEHLO_MAXIMUM STABLEHLO_MINIMUM STABLEHLO_MULTIPLY STABLEHLO_OR STABLEHLO_PAD STABLEHLO_POWER
        STABLEHLO_REDUCE STABLEHLO_REDUCE_WINDOW STABLEHLO_REMAINDER STABLEHLO_SHIFT_LEFT STABLEHLO_SUBTRACT
    """,
    (2, 2): "TOPK_V2",
    (3, 0): "HASHTABLE_IMPORT",
    (3, 1): """
        BATCH_TO_SPACE_ND CONV_3D_TRANSPOSE DILATE DYNAMIC_UPDATE_SLICE HASHTABLE_FIND PADV2 RANGE SCATTER_ND SELECT
        SELECT_V2 SLICE SPACE_TO_BATCH_ND SPLIT_V TRANSPOSE_CONV UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN
        UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM STABLEHLO_CLAMP STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_SCATTER
        STABLEHLO_SELECT
    """,
    (3, 2): "HASHTABLE_LOOKUP",
    (4, 1): "ONE_HOT SPARSE_TO_DENSE STRIDED_SLICE SVDF",
    (5, 1): "EMBEDDING_LOOKUP_SPARSE LSTM REDUCE_WINDOW RNN UNIDIRECTIONAL_SEQUENCE_RNN",
    (5, 2): "NON_MAX_SUPPRESSION_V4",
    (6, 3): "NON_MAX_SUPPRESSION_V5",
    (12, 1): "BIDIRECTIONAL_SEQUENCE_RNN",
    (20, 1): "UNIDIRECTIONAL_SEQUENCE_LSTM",
    (48, 1): "BIDIRECTIONAL_SEQUENCE_LSTM",
}

LEAST = {code: least for least, codes in _LEAST.items() for code in codes.split()}

# The custom operators that LiteRT knows.
LEAST_CUSTOM = {
    "AudioSpectrogram": (1, 1),
    "Convolution2DTransposeBias": (3, 1),
    "MaxPoolingWithArgmax2D": (1, 2),
    "MaxUnpooling2D": (2, 1),
    "Mfcc": (2, 1),
    "NumericVerify": (2, 1),
    "TFLite_Detection_PostProcess": (3, 4),
    "aeq.hadamard_rotation": (1, 1),
}

# Weights of the input gate, peepholes, the bias of the input gate, projection; of cells with layer norms these.
_LSTM = {1, 5, 9, 10, 11, 12, 16, 17, 20, 21, 22, 23}

# Positions of the inputs that may be absent. A basic LSTM, of 5 inputs, needs all.
OPTIONAL: dict[str, set[int]] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": {1, 5, 9, 10, 11, 12, 16, 17, 18, 22, 26, 27, 28, 29, 33, 34, *range(39, 48)},
    "BIDIRECTIONAL_SEQUENCE_RNN": {9, 10, 11},
    "CONV_2D": {2},
    "CONV_3D": {2},
    "CONV_3D_TRANSPOSE": {3},
    "DEPTHWISE_CONV_2D": {2},
    "FULLY_CONNECTED": {2},
    "LSTM": _LSTM,
    "SVDF": {3},
    "TRANSPOSE_CONV": {3},
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _LSTM,
}


def check_arity(where: str, code: str, is_custom: bool, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    """Accept operators with enough inputs and outputs.

    Args:
        where: The operator's index and code, for the message.
        code: The operator's.
        is_custom: Whether it is a custom operator.
        inputs: Tensors; -1 for absent ones.
        outputs: Tensors.

    Raises:
        ModelError: There are too few, or one that the operator needs is absent.
    """
    least = LEAST_CUSTOM if is_custom else LEAST
    if is_custom and code not in least:  # an operator of a plugin
        return
    for what, given, wanted in zip(("inputs", "outputs"), (inputs, outputs), least.get(code, (0, 0)), strict=True):
        if len(given) < wanted:
            raise ModelError(f"{where} has {len(given)} {what}; at least {wanted} were expected")
    basic = code == "LSTM" and len(inputs) < 20
    optional = set() if basic else OPTIONAL.get(code, set())
    absent = [i for i, tensor in enumerate(inputs) if tensor < 0 and i not in optional]
    if absent:
        raise ModelError(f"{where} is not given its input {absent[0]}, which it needs")


# The deepest nesting of calls of subgraphs. LiteRT recurses through them, on a stack of 8 MiB.
MAX_DEPTH = 64


def called_by(operator: Operator) -> tuple[int, ...]:
    """Return the numbers of the subgraphs that an operator calls."""
    values = [value for name, value in operator.options.items() if "subgraph" in name]
    return tuple(n for value in values for n in (value if isinstance(value, tuple) else (value,)))


def _check_results(where: str, caller: Subgraph, operator: Operator, number: int, branch: Subgraph) -> None:
    """Raise ModelError if a branch has results of other types than the operator."""
    wanted = [caller.tensors[t].dtype for t in operator.outputs]
    found = [branch.tensors[t].dtype for t in branch.outputs]
    if wanted != found:
        raise ModelError(f"{where} has results of types {wanted}, and subgraph {number} gives {found}")


def _check_counts(where: str, operator: Operator, number: int, called: Subgraph) -> None:
    """Raise ModelError if a decomposition takes or gives another number of values than its operator."""
    wanted, found = (len(operator.inputs), len(operator.outputs)), (len(called.inputs), len(called.outputs))
    if wanted != found:
        raise ModelError(
            f"{where} has {wanted[0]} inputs and {wanted[1]} outputs, and its decomposition, subgraph {number}, has "
            f"{found[0]} and {found[1]}"
        )


def check_calls(subgraphs: Sequence[Subgraph]) -> None:
    """Accept subgraphs that call only others of the file, and none that leads back to itself.

    Args:
        subgraphs: All of the file.

    Raises:
        ModelError: A call is wrong, or calls are too deep.
    """
    callers: dict[tuple[int, int], str] = {}
    for index, subgraph in enumerate(subgraphs):
        for operator in subgraph.operators:
            where = f"subgraph {index}, operator {operator.index} {operator.code}"
            for number in called_by(operator):
                if not 0 <= number < len(subgraphs):
                    raise ModelError(f"{where} calls subgraph {number}; the model has {len(subgraphs)}")
                callers.setdefault((index, number), where)
                if operator.code == "IF":
                    _check_results(where, subgraph, operator, number, subgraphs[number])
                if operator.code == "STABLEHLO_COMPOSITE":
                    _check_counts(where, operator, number, subgraphs[number])
    called: dict[int, set[int]] = {}
    for caller, number in callers:
        called.setdefault(caller, set()).add(number)
    try:
        order = list(TopologicalSorter(called).static_order())  # the called come first
    except CycleError as error:
        number, caller = error.args[1][:2]
        raise ModelError(f"{callers[caller, number]} calls subgraph {number}, which leads back to itself") from None
    depths: dict[int, int] = {}
    for index in order:
        depths[index] = 1 + max((depths[n] for n in called.get(index, ())), default=0)
        if depths[index] > MAX_DEPTH:
            raise ModelError(f"subgraph {index} leads to calls of subgraphs that are {depths[index]} deep or deeper")


FLOAT_TYPES = ("float16", "float32", "float64")

# One type picks the kernel, which then reads and writes memory as if both tensors had it. A SOFTMAX of integers may
# have wider ones as its result.
ALIKE = {"MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"}
BOTH_FLOAT = {"LOG_SOFTMAX", "SOFTMAX"}

# Operators whose first input is the handle of a variable.
OF_HANDLES = {"ASSIGN_VARIABLE", "READ_VARIABLE"}


def check_element_types(subgraph: Subgraph) -> None:
    """Raise ModelError for element types by which LiteRT's kernels would read what is not there."""
    for operator in subgraph.operators:
        if not operator.is_custom:
            given, result = (
                next((subgraph.tensors[t].dtype for t in side), "nothing")
                for side in (operator.inputs, operator.outputs)
            )
            _check(f"operator {operator.index} {operator.code}", operator.code, given, result)


def _check(where: str, code: str, given: str, result: str) -> None:
    """given, result: element types of the first input and output."""
    if code in ALIKE and given != result:
        raise ModelError(f"{where} makes {result} of {given}; one element type was expected")
    if code in BOTH_FLOAT and (given in FLOAT_TYPES) != (result in FLOAT_TYPES):
        raise ModelError(f"{where} makes {result} of {given}; both integers or both floats were expected")
    if code == "DEQUANTIZE" and result not in FLOAT_TYPES:
        raise ModelError(f"{where} makes {result}; floats were expected")
    handle = result if code == "VAR_HANDLE" else given if code in OF_HANDLES else "resource"
    if handle != "resource":
        raise ModelError(f"{where} takes a tensor of {handle} for the handle of a variable")


GRID_TYPES = ("int8", "uint8", "int16")

MOST_ZERO_POINT = 1 << 16  # kernels subtract it in 32 bits; one that the type does not have is none of their concern


def check_grid(where: str, dtype: str, quantization: Quantization | None) -> None:
    """Accept zero points that kernels can count with.

    Args:
        where: The tensor, for the message.
        dtype: Its element type.
        quantization: None if it has none.

    Raises:
        ModelError: A zero point is beyond that.
    """
    if quantization is None or dtype not in GRID_TYPES:
        return
    for zero_point in quantization.zero_point:
        if abs(zero_point) > MOST_ZERO_POINT:
            raise ModelError(
                f"{where} is {dtype} with the zero point {zero_point}; one of at most {MOST_ZERO_POINT} was expected"
            )


RAW_BITS = {"int4": 4, "bfloat16": 16}


def check_raw(where: str, data: NDArray[np.uint8], dtype: str, shape: Shape) -> None:
    """Accept bytes that fit the shape and the element type.

    Args:
        where: The tensor, for the message.
        data: Its bytes.
        dtype: Its element type.
        shape: Its shape.

    Raises:
        ModelError: They do not fit.
    """
    count = prod(shape)
    if dtype in RAW_BITS and data.size != -(-count * RAW_BITS[dtype] // 8):
        raise ModelError(
            f"{where} has {data.size} bytes of data, which is not what shape {list(shape)} of {dtype} needs"
        )
    if dtype == "string" and not _holds_strings(data, count):
        raise ModelError(f"{where} of shape {list(shape)} has {data.size} bytes of data that are not {count} strings")
    if dtype in ("resource", "variant"):
        raise ModelError(f"{where} is a {dtype} with a value, which exists only while a model runs")


def _holds_strings(data: NDArray[np.uint8], count: int) -> bool:
    """Whether the bytes are their number, where each begins and the last ends, and the characters."""
    header = 4 * (count + 2)
    if data.size < header:
        return False
    found, *places = data[:header].view("<i4").tolist()
    inside = places[0] == header and places[-1] <= data.size
    return found == count and inside and all(a <= b for a, b in pairwise(places))


# Options that repeat how many inputs or outputs there are.
OUTPUT_COUNTS = {"SPLIT": "num_splits", "SPLIT_V": "num_splits", "UNPACK": "num"}
INPUT_COUNTS = {"PACK": "values_count"}


def check_option_values(
    where: str, code: str, options: Mapping[str, Any], inputs: Sequence[int], outputs: Sequence[int]
) -> None:
    """Accept options that do not contradict the operator.

    Args:
        where: The operator's index and code, for the message.
        code: The operator's.
        options: By name.
        inputs: Tensors; -1 for absent ones.
        outputs: Tensors.

    Raises:
        ModelError: They do.
    """
    for counts, what, tensors in ((OUTPUT_COUNTS, "outputs", outputs), (INPUT_COUNTS, "inputs", inputs)):
        told = options.get(counts[code], 0) if code in counts else len(tensors)
        if told != len(tensors):
            raise ModelError(f"{where} has {len(tensors)} {what}, but its option {counts[code]} is {told}")
    if code == "LOCAL_RESPONSE_NORMALIZATION" and options.get("radius", 0) < 0:
        raise ModelError(f"{where} has the radius {options['radius']}; 0 or more was expected")


# Options of TFLite_Detection_PostProcess: sizes that are positive, and scales.
DETECTION_SIZES = ("max_detections", "max_classes_per_detection", "num_classes")
DETECTION_SCALES = ("y_scale", "x_scale", "h_scale", "w_scale", "nms_score_threshold", "nms_iou_threshold")
OPTIONAL_SIZES = ("detections_per_class", "use_regular_nms")

MAX_SIZE = 1 << 20


def check_custom_options(where: str, code: str, data: bytes) -> None:
    """Accept options that are a map of the numbers that the operator needs.

    Args:
        where: The operator's index and code, for the message.
        code: The operator's.
        data: FlexBuffers.

    Raises:
        ModelError: They are something else.
    """
    if code != "TFLite_Detection_PostProcess":
        return
    from flatbuffers import flexbuffers

    try:
        options = flexbuffers.GetRoot(bytearray(data)).AsMap
        names = {key.AsKey for key in options.Keys}
        sizes = [options[name].AsInt for name in (*DETECTION_SIZES, *names.intersection(OPTIONAL_SIZES))]
        scales = [options[name].AsFloat for name in DETECTION_SCALES]
    except Exception as failure:  # the decoder trusts offsets, so damage can make it raise almost any error
        raise ModelError(f"{where} has damaged options ({type(failure).__name__}: {failure})") from failure
    wrong = [n for n, size in zip(DETECTION_SIZES, sizes, strict=False) if not 0 < size <= MAX_SIZE]
    wrong += [n for n, scale in zip(DETECTION_SCALES, scales, strict=True) if not isfinite(scale)]
    if wrong:
        raise ModelError(f"{where} has no valid value for its options {', '.join(wrong)}")


LSTM_CODES = ("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM")
LSTM_INPUTS = 20  # inputs; a basic LSTM has 5

RECURRENT_WEIGHTS = range(5, 9)
LSTM_WEIGHTS = (*range(1, 12), 16)  # and peepholes; of integers in hybrid models
LSTM_STATES = (18, 19)
LSTM_FLOATS = (*range(12, 16), *range(17, 24))  # biases, state, factors of layer norms


def check_lstm_operands(subgraph: Subgraph) -> None:
    """Raise ModelError for element types that no kernel is for, a state with two uses, or recurrent weights of
    different ranks.
    """
    for operator in subgraph.operators:
        if operator.code not in LSTM_CODES or operator.is_custom or len(operator.inputs) < LSTM_INPUTS:
            continue
        where = f"operator {operator.index} {operator.code}"
        present = {place: subgraph.tensors[t] for place, t in enumerate(operator.inputs) if t >= 0}
        if len({len(tensor.shape) for place, tensor in present.items() if place in RECURRENT_WEIGHTS}) > 1:
            raise ModelError(f"{where} has recurrent weights of different ranks")
        if any(operator.inputs.count(operator.inputs[place]) > 1 for place in LSTM_STATES):
            raise ModelError(f"{where} has a state that is also another one of its inputs")
        if present[0].dtype != "float32":
            continue
        for places, types in ((LSTM_WEIGHTS, ("float16", "float32", "int8", "uint8")), (LSTM_FLOATS, ("float32",))):
            for place in places:
                if place in present and present[place].dtype not in types:
                    raise ModelError(
                        f"{where} has {present[place].dtype} as its input {place}; {' or '.join(types)} was expected"
                    )
