"""Vectors of texts, of encoders of which numpy knows each element, alone and by the server."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import openai
import pytest
from fastapi.testclient import TestClient
from litert_lm_builder.runtime.proto.embedding_metadata_pb2 import EmbeddingMetadata

import tflgpu
from tests.language.language_files import bytes_tokenizer, compressed, section_file
from tests.safety.models import scaled
from tflgpu.language import Embedder
from tflgpu.model.writer import ModelBuilder
from tflgpu.openai_server import create_app

TABLE = np.random.default_rng(5).standard_normal((150, 8)).astype(np.float32)


def encoder(*, pooled: bool) -> bytes:
    """A model of rows of a table: a vector for each of 12 tokens that its mask has, or the sum of all of them."""
    builder = ModelBuilder()
    tokens = builder.input((1, 12), "int32", name="input_ids")
    table = builder.constant(TABLE)
    rows = builder.tensor((1, 12, 8))
    builder.op("GATHER", [table, tokens], [rows], {"axis": 0})
    if pooled:
        total = builder.tensor((1, 8), name="embedding")
        builder.op("SUM", [rows, builder.constant(np.array([1], np.int32))], [total], {})
        return builder.finish([total])
    mask = builder.input((1, 12), "int32", name="attention_mask")
    ones, shaped, hidden = (
        builder.tensor((1, 12)),
        builder.tensor((1, 12, 1)),
        builder.tensor((1, 12, 8), name="hidden"),
    )
    builder.op("CAST", [mask], [ones], {"in_data_type": "INT32", "out_data_type": "FLOAT32"})
    builder.op("RESHAPE", [ones, builder.constant(np.array([1, 12, 1], np.int32))], [shaped], {})
    builder.op("MUL", [rows, shaped], [hidden], {})
    return builder.finish([hidden])


def test_vectors(device_name: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(bytes_tokenizer())
    options = tflgpu.Options(device=device_name, precision="fp32")
    rows = {"mean": lambda rows: rows.mean(axis=0), "last": lambda rows: rows[-1], "first": lambda rows: rows[0]}
    (tmp_path / "hidden.tflite").write_bytes(encoder(pooled=False))
    for pooling, pool in rows.items():
        path = tmp_path / "hidden.tflite"
        with Embedder(path, options, tokenizer=tmp_path / "tokenizer.json", pooling=pooling) as embedder:  # type: ignore[arg-type]
            expected = pool(TABLE[embedder.tokens("fast")])
            found = embedder.embed("fast")
            np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-6)
            with pytest.raises(ValueError, match=r"the text has \d+ tokens, and the model has room for 12"):
                embedder.embed("a long text that has more")
            with pytest.raises(ValueError, match="the text has no tokens"):
                embedder.embed("")


def test_an_encoder_in_a_file_of_sections(device_name: str, tmp_path: Path) -> None:
    """Its tokens of beginning and end are around each text; OpenAI's client gets the vectors."""
    metadata = EmbeddingMetadata()
    metadata.bos_token.token_ids.ids.append(3)
    metadata.eos_token.token_str = "</s>"
    parts = [
        (8, metadata.SerializeToString(), ""),
        (6, compressed(bytes_tokenizer()), ""),
        (3, encoder(pooled=True), "tf_lite_text_encoder"),
    ]
    path = section_file(tmp_path / "vectors.litertlm", parts)
    embedder = Embedder(path, tflgpu.Options(device=device_name, precision="fp32"), normalize=False)
    texts = ["fast", "how"]
    expected = []
    for text in texts:
        tokens = embedder.tokens(text)
        assert (tokens[0], tokens[-1]) == (3, 1)
        expected.append(TABLE[[*tokens, *[0] * (12 - len(tokens))]].sum(axis=0))
    with TestClient(create_app(embedder)) as http:
        request = {"input": texts, "encoding_format": "float"}
        made = openai.types.CreateEmbeddingResponse.model_validate(http.post("/v1/embeddings", json=request).json())
        np.testing.assert_allclose([each.embedding for each in made.data], expected, atol=1e-5)
        packed = http.post("/v1/embeddings", json=request | {"encoding_format": "base64"}).json()["data"][1]
        vector = np.frombuffer(base64.b64decode(packed["embedding"]), "<f4")
        np.testing.assert_allclose(vector, expected[1], atol=1e-5)
        assert http.post("/v1/embeddings", json={"input": "word " * 20}).status_code == 400


def test_models_that_make_no_vectors(device_name: str, tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(scaled(2.0))
    (tmp_path / "tokenizer.json").write_bytes(bytes_tokenizer())
    with pytest.raises(tflgpu.ModelError, match="this is no encoder of texts"):
        Embedder(tmp_path / "model.tflite", tokenizer=tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="pooling is 'max'"):
        Embedder(tmp_path / "model.tflite", pooling="max")  # type: ignore[arg-type]
