"""Requests of OpenAI's interface and answers to them: a request's fields become limits, and an answer a response."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field

from tflgpu.language import Answer, BusyError, Engine, Sampling, Session, Statistics, TokenLikelihood
from tflgpu.language.answer import Wish
from tflgpu.language.prompt import written
from tflgpu.language.reply_parts import Part, ReplyParts, call_marks
from tflgpu.language.sampling import Constraint


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class StreamOptions(_Strict):
    """Options of a streamed answer."""

    include_usage: bool = False


class _Request(_Strict):
    """Fields of chats and completions. The last group changes no answer."""

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] = 1
    max_tokens: int | None = Field(None, ge=1)
    stop: str | list[str] | None = None
    seed: int | None = Field(None, ge=0)
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None

    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    store: Literal[False] | None = None
    metadata: dict[str, str] | None = None

    @property
    def stops(self) -> list[str]:
        """Texts that end the answer."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class ChatRequest(_Request):
    """Request of a reply to messages."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: Literal[True] | None = None
    response_format: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionRequest(_Request):
    """Request of what follows a text."""

    prompt: str | list[int]
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: Literal[False] = False
    best_of: Literal[1] = 1
    suffix: None = None


class EmbeddingRequest(_Strict):
    """Request of vectors of texts, or of their tokens."""

    input: str | list[str] | list[int] | list[list[int]] = Field(min_length=1)
    model: str = ""
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None


class Metrics:
    """Counters of one server."""

    def __init__(self, busy: Callable[[], int]) -> None:
        """Take what tells how many sessions answer."""
        self._registry = CollectorRegistry()
        self._requests = Counter("tflgpu_requests", "Answers by their end.", ["end"], registry=self._registry)
        self._prompt = Counter("tflgpu_prompt_tokens", "Tokens of prompts.", registry=self._registry)
        self._kept = Counter("tflgpu_kept_tokens", "Tokens of prompts that a cache had.", registry=self._registry)
        self._new = Counter("tflgpu_new_tokens", "Tokens of answers.", registry=self._registry)
        self._seconds = Histogram("tflgpu_answer_seconds", "Time of an answer.", registry=self._registry)
        Gauge("tflgpu_busy_sessions", "Sessions that answer.", registry=self._registry).set_function(busy)

    def add(self, taken: Statistics) -> None:
        """Count an answer that is over.

        Args:
            taken: Its tokens and times.
        """
        self._requests.labels(taken.end).inc()
        self._prompt.inc(taken.prompt_tokens)
        self._kept.inc(taken.kept_tokens)
        self._new.inc(taken.new_tokens)
        self._seconds.observe(taken.prefill_seconds + taken.decode_seconds)

    def text(self) -> bytes:
        """Return all of them in Prometheus' format."""
        return bytes(generate_latest(self._registry))


class Sessions:
    """A number of sessions of one engine. Requests wait for a free one in their order. For one event loop."""

    def __init__(self, engine: Engine, count: int) -> None:
        """Make room for ``count`` sessions, which are made when they are needed."""
        self._engine, self._count = engine, count
        self._free: list[Session] = []
        self._made = 0
        self._places = asyncio.Semaphore(count)

    @property
    def busy(self) -> int:
        """How many sessions answer."""
        return self._made - len(self._free)

    @asynccontextmanager
    async def one(self, tokens: Sequence[int]) -> AsyncIterator[Session]:
        """Lend a session, and take it back after the block. Waits until one is free.

        Args:
            tokens: Those that will be read: the session that knows most of their beginning is chosen.
        """
        async with self._places:
            best = max(self._free, key=lambda session: _equal(session.tokens, tokens), default=None)
            # A session that has read nothing of this text is kept for the text that it has.
            if best is not None and (self._made == self._count or _equal(best.tokens, tokens) > _FEW):
                self._free.remove(best)
                session = best
            else:
                self._made += 1
                session = await asyncio.to_thread(self._engine.session)
            try:
                await _until_free(session)
                yield session
            finally:
                self._free.append(session)


# Tokens that begin every text, such as the start token, tell nothing of a text.
_FEW = 8


def _equal(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many first tokens of two texts are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


async def _until_free(session: Session) -> None:
    """Wait until the token is computed that was under way when the last answer was left."""
    while True:
        try:
            session.rewind(len(session.tokens))
            return
        except BusyError:
            await asyncio.sleep(0.001)


_FINISH = {"stop token": "stop", "max tokens": "length", "cache": "length", "left": "stop"}


@dataclass(frozen=True)
class Prepared:
    """A request that is ready to be answered: the tokens of its text, its limits, and what parts the reply."""

    tokens: list[int]
    wish: Wish
    parts: ReplyParts


class Answering:
    """Answers requests with one engine."""

    def __init__(self, engine: Engine, name: str, sessions: Sessions, metrics: Metrics) -> None:
        """Take an engine, and the model's name in responses."""
        self.engine, self.name, self._sessions, self._metrics = engine, name, sessions, metrics

    def prepare_chat(self, request: ChatRequest) -> Prepared:
        """Return a chat's request, ready to be answered.

        Args:
            request: It is valid as JSON; the model may still not support a part of it.

        Raises:
            ValueError: The text is too long, or a part of the request is not supported.
            TypeError: A message or an option has a wrong type.
            ModelError: The file's template cannot write the messages.
        """
        metadata = self.engine.file.metadata
        tools = request.tools if request.tool_choice != "none" else None
        messages = [_with_arguments(message) for message in request.messages]
        end = self.engine.end_text
        text = written(metadata, messages, tools=tools, context=request.chat_template_kwargs, end=end)
        wish = self.engine.wish(
            sampling=_sampling(request, self.engine),
            max_tokens=request.max_completion_tokens or request.max_tokens,
            stop=request.stops,
            constraint=self._constraint(request.response_format),
            likeliest=request.top_logprobs if request.logprobs else None,
        )
        return self._checked(
            Prepared(
                self.engine.encode(text), wish, ReplyParts(metadata.channels, call_marks(metadata) if tools else None)
            )
        )

    def prepare_completion(self, request: CompletionRequest) -> Prepared:
        """Return a completion's request, ready to be answered.

        Args:
            request: It is valid as JSON; the model may still not support a part of it.

        Raises:
            ValueError: The text is too long, or a part of the request is not supported.
            TypeError: An option has a wrong type.
            ModelError: The file cannot answer it.
        """
        given = request.prompt
        tokens = self.engine.encode(given) if isinstance(given, str) else given
        wish = self.engine.wish(
            sampling=_sampling(request, self.engine),
            max_tokens=request.max_tokens or 16,  # as OpenAI's
            stop=request.stops,
            likeliest=request.logprobs,
        )
        return self._checked(Prepared(tokens, wish, ReplyParts([], None)))

    def _checked(self, prepared: Prepared) -> Prepared:
        """Raise ValueError for a text that cannot be read, before a session is waited for."""
        count, room = len(prepared.tokens), self.engine.room
        if count > room:
            raise ValueError(f"the prompt has {count} tokens, and the model has room for {room}")
        return prepared

    def _constraint(self, form: Mapping[str, Any] | None) -> Constraint | None:
        kind = "text" if form is None else form.get("type")
        if kind == "text":
            return None
        if kind == "json_object":
            return self.engine.grammars.json()
        if kind == "json_schema" and form is not None and "schema" in form.get("json_schema", {}):
            return self.engine.grammars.json(form["json_schema"]["schema"])
        raise ValueError(f"response_format is {form!r}; text, json_object or json_schema with its schema was expected")

    async def parts(self, prepared: Prepared, taken: list[Answer]) -> AsyncIterator[Part]:
        """Yield the parts of an answer as they come.

        Args:
            prepared: Made by one of the methods above.
            taken: Gets the answer as soon as there is one.
        """
        async with self._sessions.one(prepared.tokens) as session:
            answer = await asyncio.to_thread(session.answer, prepared.tokens, prepared.wish)
            taken.append(answer)
            try:
                async for piece in answer:
                    for part in prepared.parts.add(piece):
                        yield part
                for part in prepared.parts.finish():
                    yield part
            finally:
                answer.close()
                self._metrics.add(answer.statistics)

    async def chat(self, request: ChatRequest, prepared: Prepared) -> dict[str, Any]:
        """Return the whole response to a chat, in types of JSON.

        Args:
            request: The client's.
            prepared: Made of it by :meth:`prepare_chat`.
        """
        taken: list[Answer] = []
        async for _ in self.parts(prepared, taken):
            pass
        message = _openai_message(prepared.parts.message())
        choice = {"index": 0, "message": message, "finish_reason": _finish(taken[0], message)}
        choice["logprobs"] = self._chat_logprobs(taken[0].likelihoods) if request.logprobs else None
        return self._response("chat.completion", "chatcmpl") | {
            "choices": [choice],
            "usage": _usage(taken[0].statistics),
        }

    async def chat_stream(self, request: ChatRequest, prepared: Prepared) -> AsyncIterator[str]:
        """Yield the events of a chat's response, as texts of server-sent events.

        Args:
            request: The client's.
            prepared: Made of it by :meth:`prepare_chat`.
        """
        head, taken, told = self._response("chat.completion.chunk", "chatcmpl"), list[Answer](), 0

        def event(delta: dict[str, Any], end: str | None = None) -> str:
            nonlocal told
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": end, "logprobs": None}
            if request.logprobs and taken:
                choice["logprobs"] = self._chat_logprobs(taken[0].likelihoods[told:])
                told = len(taken[0].likelihoods)
            return _event(head | {"choices": [choice]})

        yield event({"role": "assistant", "content": ""})
        async for part in self.parts(prepared, taken):
            if part.channel is None:
                yield event({"content": part.text})
            else:
                yield event({"reasoning_content": part.text})
        message = _openai_message(prepared.parts.message())
        if calls := message.get("tool_calls"):
            yield event({"tool_calls": [call | {"index": place} for place, call in enumerate(calls)]})
        yield event({}, _finish(taken[0], message))
        if request.stream_options is not None and request.stream_options.include_usage:
            yield _event(head | {"choices": [], "usage": _usage(taken[0].statistics)})
        yield "data: [DONE]\n\n"

    async def completion(self, request: CompletionRequest, prepared: Prepared) -> dict[str, Any]:
        """Return the whole response to a completion, in types of JSON.

        Args:
            request: The client's.
            prepared: Made of it by :meth:`prepare_completion`.
        """
        taken: list[Answer] = []
        text = "".join([part.text async for part in self.parts(prepared, taken)])
        choice = {"index": 0, "text": text, "finish_reason": _FINISH[taken[0].statistics.end]}
        choice["logprobs"] = None if request.logprobs is None else self._logprobs(taken[0].likelihoods)
        return self._response("text_completion", "cmpl") | {"choices": [choice], "usage": _usage(taken[0].statistics)}

    async def completion_stream(self, request: CompletionRequest, prepared: Prepared) -> AsyncIterator[str]:
        """Yield the events of a completion's response, as texts of server-sent events.

        Args:
            request: The client's.
            prepared: Made of it by :meth:`prepare_completion`.
        """
        head, taken = self._response("text_completion", "cmpl"), list[Answer]()
        choice: dict[str, Any] = {"index": 0, "text": "", "finish_reason": None, "logprobs": None}
        told = 0
        async for part in self.parts(prepared, taken):
            if request.logprobs is not None:
                choice["logprobs"] = self._logprobs(taken[0].likelihoods[told:])
                told = len(taken[0].likelihoods)
            yield _event(head | {"choices": [choice | {"text": part.text}]})
        yield _event(head | {"choices": [choice | {"finish_reason": _FINISH[taken[0].statistics.end]}]})
        if request.stream_options is not None and request.stream_options.include_usage:
            yield _event(head | {"choices": [], "usage": _usage(taken[0].statistics)})
        yield "data: [DONE]\n\n"

    def _response(self, kind: str, prefix: str) -> dict[str, Any]:
        return {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": self.name,
        }

    def _chat_logprobs(self, likelihoods: Sequence[TokenLikelihood]) -> dict[str, Any]:
        def told(token: int, log_probability: float) -> dict[str, Any]:
            text = self.engine.tokenizer.decode([token])
            return {"token": text, "logprob": log_probability, "bytes": list(text.encode())}

        return {
            "content": [
                told(each.token, each.log_probability) | {"top_logprobs": [told(*pair) for pair in each.likeliest]}
                for each in likelihoods
            ]
        }

    def _logprobs(self, likelihoods: Sequence[TokenLikelihood]) -> dict[str, Any]:
        decode = self.engine.tokenizer.decode
        tokens = [decode([each.token]) for each in likelihoods]
        return {
            "tokens": tokens,
            "token_logprobs": [each.log_probability for each in likelihoods],
            "top_logprobs": [{decode([token]): value for token, value in each.likeliest} for each in likelihoods],
            "text_offset": [sum(map(len, tokens[:place])) for place in range(len(tokens))],
        }


def _sampling(request: ChatRequest | CompletionRequest, engine: Engine) -> Sampling | None:
    """Return how a request's tokens are chosen; None for what the file says. Raises ValueError."""

    def given(*names: str) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(request, name)) is not None}

    drawn = given("top_p", "top_k", "min_p", "seed")
    changed = given("presence_penalty", "frequency_penalty", "repetition_penalty")
    if request.logit_bias:
        changed["bias"] = request.logit_bias
    if request.temperature is None and not drawn and not changed:
        return None
    default = engine.sampling()
    temperature = default.temperature if request.temperature is None else request.temperature
    if temperature == 0:  # then no token is drawn
        return Sampling(**changed)
    return replace(default, temperature=temperature, **drawn, **changed)


def _with_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose calls have their arguments as values, which templates expect; OpenAI's have a text."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    read = []
    for call in calls:
        function = dict(call["function"])
        if isinstance(function.get("arguments"), str):
            function["arguments"] = json.loads(function["arguments"])
        read.append({**call, "function": function})
    return {**message, "tool_calls": read}


def _openai_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a reply as OpenAI's interface has it: calls with ids, and arguments as a text."""
    message.pop("channels", None)
    if calls := message.get("tool_calls"):
        message["tool_calls"] = [
            {
                "id": f"call_{uuid.uuid4().hex[:24]}",
                "type": "function",
                "function": {
                    "name": call["function"]["name"],
                    "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
                },
            }
            for call in calls
        ]
    return message


def _finish(answer: Answer, message: Mapping[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else _FINISH[answer.statistics.end]


def _usage(taken: Statistics) -> dict[str, Any]:
    return {
        "prompt_tokens": taken.prompt_tokens,
        "completion_tokens": taken.new_tokens,
        "total_tokens": taken.prompt_tokens + taken.new_tokens,
        "prompt_tokens_details": {"cached_tokens": taken.kept_tokens},
    }


def _event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
