"""Small language models, whole on the device: LiteRT's answers in prefill and decode, with the cache carried by hand.

LiteRT rounds the activations of some files to 8 bits at run time. There the judge is a file of the same weights as
floats, and the error may be no larger than that of LiteRT.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.acceptance.litert_process import Arrays, steps
from tests.quick import on_first_runtime
from tests.support.integer_weights import take_from_memory
from tflgpu.kernels.integers.units import UNITS
from tflgpu.model.quantization import dequantized, is_quantized
from tflgpu.model.reader import read_model
from tflgpu.options import Interface, Options, Precision
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.opencl.devices import Device, choose

TOKENS, PLACES = 150, 100
STEPS = 64


@dataclass(frozen=True)
class Decoder:
    """A file. rounded: whether LiteRT rounds its activations."""

    name: str
    rounded: bool = False

    def __str__(self) -> str:
        return self.name


DECODERS = (
    Decoder("dynamic_int8", rounded=True),
    Decoder("float"),
    Decoder("fp16_weights"),
    Decoder("int4_blocks_of_32", rounded=True),
    Decoder("weight_only_int8"),
)


def prompts() -> tuple[Arrays, list[Arrays]]:
    """Inputs of a prefill, and of decode steps after its first half."""
    rng = np.random.default_rng(0)
    caches = {f"kv_cache_{side}_{i}": np.zeros((1, PLACES, 4, 4), np.float32) for side in "kv" for i in range(2)}
    places = np.arange(PLACES, dtype=np.int32)
    tokens = rng.integers(0, TOKENS, (STEPS + 1, PLACES)).astype(np.int32)
    prefill = {"tokens": tokens[:1], "input_pos": places, **caches}
    first = PLACES - STEPS
    return prefill, [{"tokens": tokens[i + 1 :, :1][:1], "input_pos": places[first + i :][:1]} for i in range(STEPS)]


def litert_answers(path: Path) -> list[Arrays]:
    """LiteRT's outputs of the prefill, and of each step after it."""
    prefill, decode = prompts()
    (first,) = steps(path, "prefill", [prefill])
    cache = {name: value for name, value in first.items() if "cache" in name}
    return [first, *steps(path, "decode", [{**cache, **decode[0]}, *decode[1:]])]


def tflgpu_answers(path: Path, device_name: str, precision: Precision) -> list[Arrays]:
    prefill, decode = prompts()
    models = {
        key: tflgpu.compile(
            path,
            Options(device=device_name, precision=precision, fallback="forbid", interface=Interface(signature=key)),
        )
        for key in ("prefill", "decode")
    }
    outputs: list[Arrays] = [models["prefill"].run(prefill)]
    for step in decode:
        cache = {name: value for name, value in outputs[-1].items() if "cache" in name}
        outputs.append(models["decode"].run({**cache, **step}))
    return outputs


def error(found: list[Arrays], right: list[Arrays]) -> float:
    """The largest, as a part of the largest value of an output."""
    return max(
        float(np.abs(one[name] - value).max() / np.abs(value).max())
        for one, other in zip(found, right, strict=True)
        for name, value in other.items()
    )


def float_twin(path: Path, floats: Path, folder: Path) -> Path:
    """The file ``floats`` with the numbers that the weights of ``path`` stand for."""
    content = floats.read_bytes()
    for own, other in zip(weights(floats), weights(path), strict=True):
        before, after = own.tobytes(), np.ascontiguousarray(other, np.float32).tobytes()
        assert before in content or after in content  # signatures share weights
        content = content.replace(before, after)
    twin = folder / "twin.tflite"
    twin.write_bytes(content)
    return twin


def weights(path: Path) -> list[NDArray[np.floating]]:
    """The numbers that the weights of layers stand for, in the order of the operators."""
    layers = ("EMBEDDING_LOOKUP", "FULLY_CONNECTED")
    graphs = read_model(path.read_bytes()).subgraphs
    found = [g.tensors[o.inputs[1]] for g in graphs for o in g.operators if o.code in layers]
    return [dequantized(t) if is_quantized(t) else np.asarray(t.data) for t in found]


def is_quick(decoder: Decoder, device_name: str, precision: Precision) -> bool:
    first = on_first_runtime(device_name)
    return first and (decoder.name, precision) in (("weight_only_int8", "fp32"), ("int4_blocks_of_32", "fp16"))


@pytest.mark.quick(when=is_quick)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_prefill_and_decode(
    decoder: Decoder, precision: Precision, device_name: str, shared: Path, tmp_path: Path
) -> None:
    folder = shared / "language"
    path = folder / f"decoder_{decoder.name}.tflite"
    answers = litert_answers(path)
    found = tflgpu_answers(path, device_name, precision)
    tolerance, judge = 1e-5 if precision == "fp32" else 2e-3, answers
    if decoder.name == "dynamic_int8":
        judge = litert_answers(folder / "decoder_float.tflite")
        tolerance = error(answers, judge)
    elif decoder.rounded:
        judge = litert_answers(float_twin(path, folder / "decoder_float.tflite", tmp_path))
        assert error(answers, judge) > tolerance  # else the judge would not be needed
    assert error(found, judge) <= tolerance


@pytest.mark.quick(when=lambda decoder, device_name: decoder.name == "float" and on_first_runtime(device_name))
@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_signatures_share_weights(
    decoder: Decoder, device_name: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPUs read weights in the same form in prefill and decode: of the constants, prefill has at most 5% of its own.

    Caches have no room for them, as for those of large models.
    """
    take_from_memory(monkeypatch)
    monkeypatch.setattr(Instance, "release_constants", lambda _: None)
    options = Options(device=device_name, cache="off", fallback="forbid", interface=Interface(signature="decode"))
    with tflgpu.compile(shared / f"language/decoder_{decoder.name}.tflite", options) as decode:
        if decode.device.type != "cpu":
            pytest.skip("GPUs read the weights of few rows in another form")
        if decoder.name == "dynamic_int8" and unit_is_narrow(choose(device_name)):
            pytest.skip("many rows are faster as floats of wide registers, and one row as integers of narrow ones")
        own, more = map(constant_bytes, (decode, decode.signatures["prefill"]))
    assert more <= 0.05 * (own + more)


def unit_is_narrow(device: Device) -> bool:
    """Whether a CPU's integer unit has fewer lanes than its registers have floats, as PoCL 3.0's on AVX-512 has."""
    unit = UNITS.get(device.integer_unit or "")
    return unit is not None and unit.lanes < device.limits.of_plans.vector_width


def constant_bytes(model: tflgpu.CompiledModel) -> int:
    """The bytes that a signature has on the device beside those that it shares."""
    buffers = (buffer for piece in model._artifact.pieces for buffer in piece.executable.buffers)
    return sum(buffer.bytes for buffer in buffers if buffer.data is not None)
