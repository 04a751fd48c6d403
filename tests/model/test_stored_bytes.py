"""Constants and options that lie behind the flatbuffer, as files above 2 GB have them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

import tflgpu
from tests.frontend.detectors import detector, draw
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.model.metadata import read_metadata
from tflgpu.model.reader import read_model
from tflgpu.model.writer import ModelBuilder
from tflgpu.options import CpuPart, Options

VALUES = np.arange(1, 9, dtype=np.float32)

PLACEHOLDER = 0x1122334455667788  # an offset that packing does not know yet


def products() -> bytes:
    """y = (x + VALUES) * VALUES, its constants behind the flatbuffer."""
    builder = ModelBuilder()
    x, added, y = builder.input((2, 8), name="x"), builder.tensor((2, 8)), builder.tensor((2, 8), name="y")
    builder.op("ADD", [x, builder.constant(VALUES)], [added])
    builder.op("MUL", [added, builder.constant(VALUES)], [y])
    data = packed(unpacked(builder.finish([y])))
    buffers = schema.Model.GetRootAs(data, 0)
    assert [buffers.Buffers(i).DataLength() for i in range(buffers.BuffersLength())] == [0, 0, 0]
    assert data.count(VALUES.tobytes()) == 2
    return data


def with_options_behind(data: bytes) -> bytes:
    """The options of the last operator behind the flatbuffer."""
    file = unpacked(data)
    operator = file.subgraphs[0].operators[-1]
    options, operator.customOptions = operator.customOptions.tobytes(), None
    operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize = PLACEHOLDER, len(options)
    moved = packed(file)
    return moved.replace(struct.pack("<Q", PLACEHOLDER), struct.pack("<Q", len(moved))) + options


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
@pytest.mark.parametrize("on_cpu", [(), ("MUL",), ("ADD", "MUL")])
def test_constants_behind_the_flatbuffer(on_cpu: tuple[str, ...]) -> None:
    x = np.ones((2, 8), np.float32)
    model = tflgpu.compile(products(), Options(precision="fp32", cpu_part=CpuPart(operators=on_cpu)))
    np.testing.assert_array_equal(model.run(x)["y"], (x + VALUES) * VALUES)


def test_constants_that_are_not_in_the_file(tmp_path: Path) -> None:
    damaged = products()[:-4]
    for read in (read_model, unpacked, tflgpu.compile, tflgpu.inspect):
        with pytest.raises(
            tflgpu.ModelError, match=r"buffer 2 lies in bytes .*, behind the flatbuffer, and the file has"
        ):
            read(damaged)  # type: ignore[operator]
    (tmp_path / "model.tflite").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"is not a valid model: .* buffer 2 lies in bytes"):
        tflgpu.Interpreter(tmp_path / "model.tflite")


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_options_behind_the_flatbuffer() -> None:
    data = with_options_behind(detector())
    assert read_model(data).subgraphs[0].operators == read_model(detector()).subgraphs[0].operators
    found, expected = (
        tflgpu.compile(each, Options(precision="fp32")).run(list(draw(0))) for each in (data, detector())
    )
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    with pytest.raises(tflgpu.ModelError, match="options of operator 1 TFLite_Detection_PostProcess lies in bytes"):
        read_model(data[:-1])


def test_metadata_behind_the_flatbuffer() -> None:
    """Here they are damaged, so they were found."""
    file = unpacked(products())
    file.buffers.append(schema.BufferT(data=np.arange(64, dtype=np.uint8)))
    file.metadata = [schema.MetadataT(name="TFLITE_METADATA", buffer=3)]
    with pytest.raises(tflgpu.ModelError, match="metadata are damaged"):
        read_metadata(packed(file))
