"""Settings of LiteRT-LM's engines, conversations and answers, and what they mean here."""

from __future__ import annotations

import enum
import json
import logging
import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tflgpu.language import Sampling, Statistics


class Backend:
    """Kind of device that runs a model: ``Backend.CPU()`` or ``Backend.GPU()``."""

    CPU: ClassVar[type[CPU]]
    GPU: ClassVar[type[GPU]]

    def get_name(self) -> str:
        """Return the kind of device, in small letters."""
        return type(self).__name__.lower()


@dataclass(frozen=True, kw_only=True)
class CPU(Backend):
    """CPU that has an OpenCL runtime.

    Attributes:
        thread_count: How many cores to use; None for all.
    """

    thread_count: int | None = None


@dataclass(frozen=True, kw_only=True)
class GPU(Backend):
    """GPU that has an OpenCL driver.

    Attributes:
        gpu_decode_steps_per_sync: Without effect: two steps are under way at a time.
    """

    gpu_decode_steps_per_sync: int | None = None


Backend.CPU = CPU
Backend.GPU = GPU


class LogSeverity(enum.IntEnum):
    """Least severity of messages, as Python's logging has it."""

    VERBOSE = logging.DEBUG
    DEBUG = logging.DEBUG
    INFO = logging.INFO
    WARNING = logging.WARNING
    ERROR = logging.ERROR
    FATAL = logging.CRITICAL
    SILENT = logging.CRITICAL + 1


def set_min_log_severity(severity: LogSeverity) -> None:
    """Let tflgpu log no messages below a severity.

    Args:
        severity: The least one.
    """
    logging.getLogger("tflgpu").setLevel(int(severity))


@dataclass
class SamplerConfig:
    """How tokens are chosen; what is None is as the file says, or LiteRT-LM's default."""

    top_k: int | None = None
    top_p: float | None = None
    temperature: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Check the values. Raises ValueError."""
        self.sampling()

    def sampling(self) -> Sampling:
        """Return the same for :mod:`tflgpu.language`."""
        if self.temperature == 0:
            return Sampling()
        temperature = 1.0 if self.temperature is None else self.temperature
        return Sampling(temperature=temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)


@dataclass
class RepetitionPenaltyConfig:
    """Penalties for tokens that an answer has; see :class:`tflgpu.language.Sampling`."""

    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    window_size: int | None = None


@dataclass
class SuppressTokensConfig:
    """Tokens that are never chosen."""

    suppress_tokens: Collection[int] | None = None


@dataclass
class ThinkingConfig:
    """Whether a model thinks before it answers; its template has the variable ``enable_thinking``."""

    enable_thinking: bool = True
    thinking_token_budget: int = -1

    def __post_init__(self) -> None:
        """Raise ValueError for a budget."""
        if self.thinking_token_budget >= 0:
            raise ValueError("a budget of tokens for thoughts is not supported; limit the answer instead")


@dataclass
class ConstrainedDecodingConfig:
    """Whether answers may be constrained. It is always possible here."""

    enable: bool = True
    provider: object = None


@dataclass
class ResponseFormat:
    """The form that an answer must have: JSON of a schema, or a text of a regular expression."""

    class Type:
        """Kinds of formats."""

        NONE = 0
        REGEX = 1
        JSON_OBJECT = 2

    type: int
    schema_or_pattern: str

    @classmethod
    def json(cls, schema: dict[str, Any] | str) -> ResponseFormat:
        """Return the format of JSON of a schema.

        Args:
            schema: As a dictionary, or as JSON.

        Raises:
            ValueError: The text is no JSON.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        json.loads(text)
        return cls(cls.Type.JSON_OBJECT, text)

    @classmethod
    def regex(cls, pattern: str) -> ResponseFormat:
        """Return the format of texts of a regular expression.

        Args:
            pattern: The expression.
        """
        return cls(cls.Type.REGEX, pattern)


@dataclass
class BenchmarkInfo:
    """Times of a conversation or session, in seconds, and rates."""

    init_time_in_second: float
    time_to_first_token_in_second: float
    last_prefill_token_count: int
    last_prefill_tokens_per_second: float
    last_decode_token_count: int
    last_decode_tokens_per_second: float


@dataclass
class Responses:
    """Answers of a session, or what it thinks of texts."""

    texts: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    token_lengths: list[int] = field(default_factory=list)
    token_scores: list[list[float]] = field(default_factory=list)


def changed(
    sampling: Sampling | None,
    default: Sampling,
    penalties: RepetitionPenaltyConfig | None,
    suppressed: SuppressTokensConfig | None,
) -> Sampling | None:
    """Return how tokens are chosen, with penalties and without some tokens.

    Args:
        sampling: The caller's choice; None for the file's.
        default: The file's choice, which penalties are added to if the caller has none.
        penalties: None for no penalties.
        suppressed: Tokens that are never chosen; None for none.

    Returns:
        None for what the file says.
    """
    if penalties is None and suppressed is None:
        return sampling
    chosen = default if sampling is None else sampling
    if penalties is not None:
        chosen = replace(
            chosen,
            repetition_penalty=penalties.repetition_penalty or 1.0,
            presence_penalty=penalties.presence_penalty or 0.0,
            frequency_penalty=penalties.frequency_penalty or 0.0,
            penalty_window=penalties.window_size or 0,
        )
    if suppressed is not None:
        forbidden = dict.fromkeys(suppressed.suppress_tokens or (), -math.inf)
        chosen = replace(chosen, bias={**chosen.bias, **forbidden})
    return chosen


def benchmark_info(seconds: float, taken: Statistics | None) -> BenchmarkInfo:
    """Return the times of an engine's last answer.

    Args:
        seconds: Time until the engine was ready.
        taken: The answer's tokens and times; None if there was no answer.

    Raises:
        RuntimeError: There was none.
    """
    if taken is None:
        raise RuntimeError("there is no answer yet; times are known after the first one")
    first = taken.prefill_seconds + (1 / taken.decode_rate if taken.decode_rate else 0.0)
    read = taken.prompt_tokens - taken.kept_tokens
    return BenchmarkInfo(seconds, first, read, taken.prefill_rate, taken.new_tokens, taken.decode_rate)
