"""MobileNetV1 0.25 224 in every type of model.

The float32 file and the one of quantization-aware training are published; the others are made of the float32 file by
Google's AI Edge Quantizer, which does after conversion what TensorFlow's converter does with the same options.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tflgpu.fallback.schema_objects import packed, unpacked

FLOAT32 = "mobilenet_v1_0.25_224_1_default_1.tflite"
TRAINED = "mobilenet_v1_0.25_224_quant.tflite"

SIGNATURE, INPUT = "serving_default", "input"


def family(folder: Path, images: Sequence[np.ndarray]) -> dict[str, bytes]:
    """Type of model -> file. folder: with the published files. images: inputs of the float32 file, to calibrate with.

    Raises OSError if a published file is not there.
    """
    original = (folder / FLOAT32).read_bytes()
    return dict(_quantized(original, images)) | {"quantization-aware training": (folder / TRAINED).read_bytes()}


def write_models(models: Mapping[str, bytes], folder: Path) -> None:
    """For a machine without the quantizer."""
    folder.mkdir(parents=True)
    for number, (kind, model) in enumerate(models.items()):
        (folder / f"{number} {kind}.tflite").write_bytes(model)


def read_models(folder: Path) -> dict[str, bytes]:
    """The models that :func:`write_models` wrote, in its order."""
    return {path.stem.partition(" ")[2]: path.read_bytes() for path in sorted(folder.glob("*.tflite"))}


def _quantized(original: bytes, images: Sequence[np.ndarray]) -> Iterator[tuple[str, bytes]]:
    from ai_edge_quantizer import recipe  # an extra of the package

    modern = _modern(original)
    whole = recipe.static_wi8_ai8()
    float_parts = [_left_in_float(operation) for operation in ("INPUT", "OUTPUT", "SOFTMAX")]
    yield "float32", modern
    yield "float16", _converted(modern, [_FLOAT16])
    yield "dynamic range", _converted(modern, recipe.dynamic_wi8_afp32())
    yield "int8", _converted(modern, whole, images)
    yield "int8 with float fallback", _converted(modern, [*whole, *float_parts], images)


# Weights are stored as float16, and DEQUANTIZE gives them back to float operators.
_FLOAT16 = {
    "regex": ".*",
    "operation": "*",
    "algorithm_key": "float_casting",
    "op_config": {
        "weight_tensor_config": {"num_bits": 16, "symmetric": True, "granularity": "TENSORWISE", "dtype": "FLOAT"},
        "compute_precision": "FLOAT",
        "explicit_dequantize": True,
    },
}


def _left_in_float(operation: str) -> dict[str, Any]:
    return {"regex": ".*", "operation": operation, "algorithm_key": "no_quantize"}


def _converted(model: bytes, recipe: list[dict[str, Any]], images: Sequence[np.ndarray] = ()) -> bytes:
    from ai_edge_quantizer import quantizer

    converter = quantizer.Quantizer(model)
    converter.load_quantization_recipe(recipe)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*preserve_all_tensors", UserWarning)  # to find ranges takes them all
        ranges = converter.calibrate({SIGNATURE: [{INPUT: image} for image in images]}) if images else None
        return bytes(converter.quantize(ranges, enable_progress_report=False).quantized_model)


def _modern(data: bytes) -> bytes:
    """The file as a converter of today writes it, which the quantizer takes for granted.

    Codes of operators are in the wide field, there is a signature, and SQUEEZE is a RESHAPE, which has an int8 kernel.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = unpacked(data)
    graph = model.subgraphs[0]
    squeeze, reshape = schema.BuiltinOperator.SQUEEZE, schema.BuiltinOperator.RESHAPE
    for code in model.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    for operator in graph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        if code.builtinCode == squeeze:
            operator.builtinOptionsType = schema.BuiltinOptions.ReshapeOptions
            operator.builtinOptions = schema.ReshapeOptionsT()
            operator.builtinOptions.newShape = list(graph.tensors[operator.outputs[0]].shape)
    for code in model.operatorCodes:
        if code.builtinCode == squeeze:
            code.builtinCode = code.deprecatedBuiltinCode = reshape
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = SIGNATURE, 0
    signature.inputs = [_argument(schema, INPUT, graph.inputs[0])]
    signature.outputs = [_argument(schema, "output", graph.outputs[0])]
    model.signatureDefs = [signature]
    return packed(model)


def _argument(schema: Any, name: str, tensor: int) -> Any:
    argument = schema.TensorMapT()
    argument.name, argument.tensorIndex = name, tensor
    return argument
