"""The operators in float64 numpy, NHWC: what every kernel is judged by.

Each function follows the meaning that TensorFlow gives the operator and nothing of how tflgpu computes it. They are
written to be evidently right rather than fast: a sliding window is a loop over its taps. Operators that numpy has under
their own name are missing here. ``test_reference.py`` compares all with LiteRT.
"""

from __future__ import annotations

from tests.ops.reference.elementwise import (
    ACTIVATIONS,
    Array,
    elu,
    gelu,
    gelu_approximate,
    hard_swish,
    logistic,
    prelu,
    relu,
    relu6,
    relu_0_to_1,
    relu_n1_to_1,
    rsqrt,
    squared_difference,
    truncated_div,
)
from tests.ops.reference.movement import (
    SliceSpec,
    batch_to_space,
    depth_to_space,
    dynamic_update_slice,
    gather,
    mirror_pad,
    one_hot,
    space_to_batch,
    space_to_depth,
    strided_slice,
    top_k,
)
from tests.ops.reference.resampling import resampler, resize_bilinear, resize_nearest_neighbor, round_half_up
from tests.ops.reference.windows import (
    Window,
    average_pool_2d,
    conv_2d,
    cumsum,
    depthwise_conv_2d,
    fully_connected,
    l2_normalization,
    l2_pool_2d,
    local_response_normalization,
    max_pool_2d,
    softmax,
    transpose_conv,
)

__all__ = [
    "ACTIVATIONS",
    "Array",
    "SliceSpec",
    "Window",
    "average_pool_2d",
    "batch_to_space",
    "conv_2d",
    "cumsum",
    "depth_to_space",
    "depthwise_conv_2d",
    "dynamic_update_slice",
    "elu",
    "fully_connected",
    "gather",
    "gelu",
    "gelu_approximate",
    "hard_swish",
    "l2_normalization",
    "l2_pool_2d",
    "local_response_normalization",
    "logistic",
    "max_pool_2d",
    "mirror_pad",
    "one_hot",
    "prelu",
    "relu",
    "relu6",
    "relu_0_to_1",
    "relu_n1_to_1",
    "resampler",
    "resize_bilinear",
    "resize_nearest_neighbor",
    "round_half_up",
    "rsqrt",
    "softmax",
    "space_to_batch",
    "space_to_depth",
    "squared_difference",
    "strided_slice",
    "top_k",
    "transpose_conv",
    "truncated_div",
]
