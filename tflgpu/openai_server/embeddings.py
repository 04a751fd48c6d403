"""Vectors of texts for requests."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tflgpu.language import Embedder
from tflgpu.openai_server.requests import EmbeddingRequest


def embeddings(embedder: Embedder, name: str, request: EmbeddingRequest) -> dict[str, Any]:
    """Return the whole response to a request for vectors, in types of JSON.

    Args:
        embedder: Computes the vectors.
        name: The model's name in the response.
        request: One text or several, also as tokens.

    Raises:
        ValueError: A text cannot be read.
    """
    given = request.input
    single = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    texts: list[Any] = [given] if single else list(given)
    data, count = [], 0
    for place, text in enumerate(texts):
        tokens = embedder.tokens(text) if isinstance(text, str) else text
        vector = embedder.embed(tokens)
        count += len(tokens)
        is_text = request.encoding_format == "base64"
        value: Any = base64.b64encode(vector.astype(np.dtype("<f4")).tobytes()).decode() if is_text else vector.tolist()
        data.append({"object": "embedding", "index": place, "embedding": value})
    usage = {"prompt_tokens": count, "total_tokens": count}
    return {"object": "list", "model": name, "data": data, "usage": usage}
