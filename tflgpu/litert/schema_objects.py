"""A .tflite file as objects of LiteRT's own schema, whose fields can be changed."""

from __future__ import annotations

from typing import Any

from tflgpu.errors import ModelError

IDENTIFIER = b"TFL3"


def unpacked(data: bytes | bytearray | memoryview) -> Any:
    """The file's ``ModelT``. Raises ModelError for what LiteRT's schema does not know."""
    from ai_edge_litert import schema_py_generated as schema  # an extra of the package

    try:
        return schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    except Exception as failure:  # the decoder trusts offsets, so damage can make it raise almost any error
        raise ModelError(f"LiteRT's schema cannot read the model: {type(failure).__name__}: {failure}") from failure


def packed(model: Any) -> bytes:
    """The file of a ``ModelT``."""
    import flatbuffers  # a warm start does without

    builder: Any = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())
