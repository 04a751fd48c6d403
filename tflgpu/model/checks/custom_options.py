"""The options of custom operators that LiteRT's kernels read without a look at whether they make sense."""

from __future__ import annotations

from math import isfinite

from tflgpu.errors import ModelError

# Options of TFLite_Detection_PostProcess: sizes that are positive, and scales.
SIZES = ("max_detections", "max_classes_per_detection", "num_classes")
SCALES = ("y_scale", "x_scale", "h_scale", "w_scale", "nms_score_threshold", "nms_iou_threshold")
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
        sizes = [options[name].AsInt for name in (*SIZES, *names.intersection(OPTIONAL_SIZES))]
        scales = [options[name].AsFloat for name in SCALES]
    except Exception as failure:  # the decoder trusts offsets, so damage can make it raise almost any error
        raise ModelError(f"{where} has damaged options ({type(failure).__name__}: {failure})") from failure
    wrong = [n for n, size in zip(SIZES, sizes, strict=False) if not 0 < size <= MAX_SIZE]
    wrong += [n for n, scale in zip(SCALES, scales, strict=True) if not isfinite(scale)]
    if wrong:
        raise ModelError(f"{where} has no valid value for its options {', '.join(wrong)}")
