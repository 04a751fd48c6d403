"""Metadata of a file about its language model: how a text begins and ends, how it is written, how tokens are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

# A token as files name it: by its text, or by the ids that it consists of.
NamedToken = str | tuple[int, ...]


@dataclass(frozen=True)
class Affixes:
    """Text before and after what one role says."""

    prefix: str = ""
    suffix: str = ""


@dataclass(frozen=True)
class Channel:
    """A part of an answer that is no text for the user, such as a thought, between two marks.

    Attributes:
        name: Of the channel.
        start: The text that begins it.
        end: The text that ends it.
        is_reasoning: Whether it has the model's reasoning; None if the file does not say it.
    """

    name: str
    start: str
    end: str
    is_reasoning: bool | None = None


@dataclass(frozen=True)
class FileSampler:
    """Sampler that a file asks for; :func:`tflgpu.language.sampling.sampling_of` makes a ``Sampling`` of it.

    Attributes:
        type: Which tokens may be chosen. ``unspecified`` leaves that to the program.
        k: How many tokens with the largest scores; 0 for all.
        p: The least sum of their probabilities.
        temperature: Scores are divided by it.
        seed: Of the random numbers; None for others each time.
    """

    type: Literal["unspecified", "top k", "top p", "greedy"]
    k: int = 0
    p: float = 0.0
    temperature: float = 0.0
    seed: int | None = None


@dataclass(frozen=True)
class LanguageMetadata:
    """Metadata of a file about its language model.

    Attributes:
        start: The token before every text, None if there is none.
        stops: Tokens that end an answer.
        pad: The token of places without text. Such places are computed in vain, whatever token they have.
        user: Text around what a user says.
        model: Text around what the model answers.
        system: Text around a system message.
        jinja_template: A template of Jinja for a whole conversation; empty if the file has none.
        max_tokens: How many tokens prompt and answer may have together; 0 if the file does not say it.
        sampler: How tokens are chosen, None if the file does not say it.
        suppressed: Tokens that are never chosen.
        cache_value: What an empty cache is filled with.
        channels: Parts of an answer that are no text for the user.
        thinks: Whether the model can think before it answers; None if the file does not say it.
        calls_functions: Whether the model can call functions; None if the file does not say it.
        model_type: The family of the model, such as ``gemma3``; empty if the file does not say it.
        model_fields: What the file says of that family: marks of function calls, tokens and sizes of images and audio.
        least_runtime: The first version of LiteRT-LM that can run the file; empty if the file does not say it.
        bytes_as_letters: Whether the tokenizer takes the letters that GPT-2 has for bytes, in place of text.
    """

    start: NamedToken | None = None
    stops: tuple[NamedToken, ...] = ()
    pad: NamedToken | None = None
    user: Affixes = Affixes()
    model: Affixes = Affixes()
    system: Affixes = Affixes()
    jinja_template: str = ""
    max_tokens: int = 0
    sampler: FileSampler | None = None
    suppressed: tuple[int, ...] = ()
    cache_value: int = 0
    channels: tuple[Channel, ...] = ()
    thinks: bool | None = None
    calls_functions: bool | None = None
    model_type: str = ""
    model_fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    least_runtime: str = ""
    bytes_as_letters: bool = False
