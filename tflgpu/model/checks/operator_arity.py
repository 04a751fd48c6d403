"""How many inputs and outputs each operator needs at least, and which inputs a file may leave out.

Kernels read these without a look at whether they are there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tflgpu.errors import ModelError

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
