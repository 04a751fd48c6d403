"""Requests of OpenAI's interface. A field that would change an answer and is not here is an error."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


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
