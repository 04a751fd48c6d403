"""The application: paths of OpenAI's interface, of health and of metrics."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse

from tflgpu.errors import ModelError, TflgpuError
from tflgpu.language import Embedder, Engine
from tflgpu.openai_server.answering import (
    Answering,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    Metrics,
    Sessions,
)


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


def create_app(engine: Engine | Embedder, *, name: str | None = None, sessions: int = 4) -> FastAPI:
    """Return the application of a server, for any server of ASGI.

    Args:
        engine: What answers, or makes vectors. It is closed when the server ends.
        name: The model's name; by default that of its file.
        sessions: How many requests are answered at a time, each with a cache of its own; others wait.

    Returns:
        The application.

    Raises:
        ValueError: There are no sessions.
    """
    if sessions < 1:
        raise ValueError(f"sessions is {sessions}; 1 or more was expected")
    name = name or engine.file.path.stem

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        engine.close()

    app = FastAPI(title=f"tflgpu: {name}", lifespan=lifespan)
    model = {"id": name, "object": "model", "created": 0, "owned_by": "tflgpu"}

    @app.exception_handler(RequestValidationError)
    async def wrong_field(_: Request, error: RequestValidationError) -> JSONResponse:
        found = error.errors()[0]
        field = ".".join(str(part) for part in found["loc"][1:])
        return _error(HTTPStatus.BAD_REQUEST, f"{field}: {found['msg']}", field)

    @app.exception_handler(ValueError)
    @app.exception_handler(TypeError)
    @app.exception_handler(ModelError)
    async def wrong_request(_: Request, error: Exception) -> JSONResponse:
        return _error(HTTPStatus.BAD_REQUEST, str(error))

    @app.exception_handler(TflgpuError)
    async def failed(_: Request, error: TflgpuError) -> JSONResponse:
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [model]}

    @app.get("/v1/models/{wanted:path}", response_model=None)
    async def one_model(wanted: str) -> Response | dict[str, Any]:
        if wanted != name:
            return _error(HTTPStatus.NOT_FOUND, f"there is no model {wanted!r}; there is {name!r}")
        return model

    if isinstance(engine, Embedder):
        _add_embeddings(app, engine, name)
    else:
        _add_answers(app, engine, name, sessions)
    return app


def _add_answers(app: FastAPI, engine: Engine, name: str, sessions: int) -> None:
    """Add the paths of a model that answers."""
    places = Sessions(engine, sessions)
    metrics = Metrics(lambda: places.busy)
    answering = Answering(engine, name, places, metrics)

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(request: ChatRequest) -> Response | dict[str, Any]:
        prepared = await asyncio.to_thread(answering.prepare_chat, request)
        if not request.stream:
            return await answering.chat(request, prepared)
        return StreamingResponse(answering.chat_stream(request, prepared), media_type="text/event-stream")

    @app.post("/v1/completions", response_model=None)
    async def completion(request: CompletionRequest) -> Response | dict[str, Any]:
        prepared = await asyncio.to_thread(answering.prepare_completion, request)
        if not request.stream:
            return await answering.completion(request, prepared)
        return StreamingResponse(answering.completion_stream(request, prepared), media_type="text/event-stream")

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "model": name, "busy_sessions": places.busy, "sessions": sessions}

    @app.get("/metrics")
    async def counted() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")


def _add_embeddings(app: FastAPI, embedder: Embedder, name: str) -> None:
    """Add the paths of a model that makes vectors of texts."""

    @app.post("/v1/embeddings")
    async def embed(request: EmbeddingRequest) -> dict[str, Any]:
        return await asyncio.to_thread(embeddings, embedder, name, request)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "model": name}


def _error(status: HTTPStatus, message: str, field: str | None = None) -> JSONResponse:
    kind = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    return JSONResponse(
        {"error": {"message": message, "type": kind, "param": field, "code": None}}, status_code=int(status)
    )
