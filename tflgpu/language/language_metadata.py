"""Metadata of a file about its language model: how a text begins and ends, and how a prompt is written."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.language.message_fields import Message

# A token as files name it: by its text, or by the ids that it consists of.
NamedToken = str | tuple[int, ...]


@dataclass(frozen=True)
class Affixes:
    """Text before and after what one role says."""

    prefix: str = ""
    suffix: str = ""


@dataclass(frozen=True)
class LanguageMetadata:
    """Metadata of a file about its language model.

    Attributes:
        start: The token before every text, None if there is none.
        stops: Tokens that end an answer.
        user: Text around what a user says.
        model: Text around what the model answers.
        jinja_template: A template of Jinja for a whole conversation; empty if the file has none.
        max_tokens: How many tokens prompt and answer may have together; 0 if the file does not say it.
        bytes_as_letters: Whether the tokenizer takes the letters that GPT-2 has for bytes, in place of text.
    """

    start: NamedToken | None = None
    stops: tuple[NamedToken, ...] = ()
    user: Affixes = Affixes()
    model: Affixes = Affixes()
    jinja_template: str = ""
    max_tokens: int = 0
    bytes_as_letters: bool = False


def section_metadata(data: bytes) -> LanguageMetadata:
    """Return what a .litertlm file has: a message LlmMetadata. Raises ModelError."""
    message = Message(data)
    templates = message.message(3)
    stops = (_named_token(token) for token in message.messages(2))
    return LanguageMetadata(
        start=_named_token(message.message(1)),
        stops=tuple(stop for stop in stops if stop is not None),
        user=_affixes(templates.message(1)),
        model=_affixes(templates.message(2)),
        jinja_template=message.text(7),
        max_tokens=max(message.integer(5), 0),
    )


def task_metadata(data: bytes) -> LanguageMetadata:
    """Return what a .task file has: a message LlmParameters. Raises ModelError."""
    message = Message(data)
    start: NamedToken | None = message.text(6) or None
    if start is None and 4 in message:
        start = (message.integer(4),)
    template = message.message(8)
    return LanguageMetadata(
        start=start,
        stops=tuple(stop for stop in message.texts(5) if stop),
        user=Affixes(template.text(1) + template.text(2), template.text(3)),
        bytes_as_letters=1 in message.integers(7),
    )


def _named_token(message: Message) -> NamedToken | None:
    """Read a TokenUnion: ids, or a text."""
    return message.text(2) or tuple(message.message(1).integers(1)) or None


def _affixes(message: Message) -> Affixes:
    return Affixes(message.text(1), message.text(2))
