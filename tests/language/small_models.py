"""Small models of which numpy or LiteRT knows every score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from tflgpu.model.writer import ModelBuilder


def sum_of_cache(places: int, vocabulary: int = 40) -> tuple[bytes, NDArray[np.float32]]:
    """A model and a table, of which its cache has a row for each token; scores are products of their sum with it."""
    table = np.random.default_rng(3).standard_normal((vocabulary, 8)).astype(np.float32)
    builder = ModelBuilder()
    tokens = builder.input((1, 1), "int32", name="tokens")
    position = builder.input((1,), "int32", name="input_pos")
    cache = builder.input((1, places, 1, 8), name="kv_cache_k_0")
    weights = builder.constant(table)

    def add(
        code: str, inputs: list[int], shape: tuple[int, ...], name: str | None = None, dtype: str = "float32"
    ) -> int:
        output = builder.tensor(shape, dtype, name=name)
        builder.op(code, inputs, [output], {"axis": 0} if code in ("GATHER", "CONCATENATION") else {})
        return output

    def integers(*values: int) -> int:
        return builder.constant(np.array(values, np.int32))

    row = add("RESHAPE", [add("GATHER", [weights, tokens], (1, 1, 8)), integers(1, 1, 1, 8)], (1, 1, 1, 8))
    start = add("CONCATENATION", [integers(0), position, integers(0, 0)], (4,), dtype="int32")
    written = add("DYNAMIC_UPDATE_SLICE", [cache, row, start], (1, places, 1, 8), "kv_cache_k_0")
    total = add("SUM", [written, integers(1, 2)], (1, 8))
    bias = builder.constant(np.zeros(vocabulary, np.float32))
    logits = add("FULLY_CONNECTED", [total, weights, bias], (1, vocabulary), "logits")
    return builder.finish([written, logits], signature="decode"), table


def litert_answer(model: bytes, prompt: list[int], count: int, forbidden: Sequence[int] = ()) -> list[int]:
    """The likeliest tokens after a prompt by LiteRT's interpreter, which reads one token at a time."""
    runner = Interpreter(model_content=model).get_signature_runner("decode")
    details = runner.get_input_details()
    cache = {name: np.zeros(d["shape"], d["dtype"]) for name, d in details.items() if name.startswith("kv")}
    text = list(prompt)
    for position in range(len(prompt) + count - 1):
        tokens = np.array([[text[position]]], np.int32)
        cache = runner(tokens=tokens, input_pos=np.array([position], np.int32), **cache)
        logits = cache.pop("logits").ravel()
        logits[list(forbidden)] = -np.inf
        if position == len(text) - 1:
            text.append(int(logits.argmax()))
    return text[len(prompt) :]
