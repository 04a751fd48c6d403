"""Answers prompts: a file's model, tokenizer and stop tokens together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal

import tflgpu
from tflgpu.errors import ModelError
from tflgpu.language.containers import LanguageFile, open_language_file, tokenizer_data
from tflgpu.language.language_steps import language_steps
from tflgpu.language.prompt import written_prompt
from tflgpu.language.sampling import Sampler, Sampling
from tflgpu.language.token_decoder import TokenDecoder
from tflgpu.language.tokenizer import TextOfTokens, Tokenizer, load_tokenizer, tokens_of
from tflgpu.model.reader import read_signatures

End = Literal["stop token", "max tokens", "cache", "left"]


@dataclass(frozen=True)
class Statistics:
    """Statistics of an answer.

    Attributes:
        prompt_tokens: Tokens of the prompt, with what the file puts around it.
        new_tokens: Tokens of the answer, a stop token included.
        prefill_seconds: Seconds to read the prompt, without its last token.
        decode_seconds: Seconds for the answer.
        end: Why it ended: ``"stop token"``, ``"max tokens"``, ``"cache"`` if the cache is full, ``"left"`` if the
            caller left it, or has not read all of it yet.
    """

    prompt_tokens: int
    new_tokens: int
    prefill_seconds: float
    decode_seconds: float
    end: End

    @property
    def prefill_rate(self) -> float:
        """Tokens of the prompt for each second."""
        return (self.prompt_tokens - 1) / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens of the answer for each second."""
        return self.new_tokens / self.decode_seconds if self.decode_seconds else 0.0


class Generator:
    """Answers prompts with the language model of a file. A context manager; for one thread at a time.

    Attributes:
        file: The parts of the file.
        tokenizer: Text to tokens and back.
        decoder: The model on its device.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        options: tflgpu.Options | None = None,
        *,
        tokenizer: str | PathLike[str] | Tokenizer | None = None,
        stops: Sequence[str] = (),
    ) -> None:
        """Open a file and compile its model.

        Args:
            path: A .litertlm, .task or .tflite file.
            options: For :func:`tflgpu.compile`.
            tokenizer: A file of ``sentencepiece`` or ``tokenizers``, or an object, in place of the file's own one. A
                .tflite file has none.
            stops: Tokens that end an answer, by their text, beside those that the file names.

        Raises:
            ModelError: The file or its tokenizer is damaged, or its model is no language model.
            ValueError: There is no tokenizer, or the package that reads it is not installed, or a stop is empty.
            TypeError: The stops are no texts.
            UnsupportedError: An operator cannot run on the device.
            DeviceError: There is no fitting device.
            BuildError: The device's compiler fails.
            OSError: A file cannot be read.
        """
        _check_texts("stops", stops)
        self.file = open_language_file(path)
        self.tokenizer = _tokenizer(self.file, tokenizer)
        named = (*self.file.metadata.stops, *stops)
        self._stops = tuple(filter(None, (tokens_of(self.tokenizer, stop) for stop in named)))
        start = self.file.metadata.start
        self._start = () if start is None else tokens_of(self.tokenizer, start)
        with _naming(self.file.path):
            self.decoder = TokenDecoder.compile(self.file.model(), options)

    def encode(self, prompt: str, *, template: bool = True) -> list[int]:
        """Return the tokens of a prompt.

        Args:
            prompt: What a user says.
            template: Whether to put the text around it that the file has for that.

        Returns:
            The start token, if the file names one, and the tokens of the prompt.

        Raises:
            ModelError: The file's template fails.
            TypeError: The prompt is no text.
            ValueError: The prompt has halves of characters, as Python reads bytes that are no UTF-8.
        """
        if not isinstance(prompt, str):
            raise TypeError(_no_prompt(prompt))
        try:
            prompt.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the prompt is no text in UTF-8, at character {error.start}") from error
        text = written_prompt(self.file.metadata, prompt) if template else prompt
        return [*self._start, *self.tokenizer.encode(text)]

    def stream(
        self, prompt: str, *, max_tokens: int | None = None, sampling: Sampling | None = None, template: bool = True
    ) -> Answer:
        """Answer a prompt, piece by piece. A later call ends an earlier answer.

        Args:
            prompt: What a user says.
            max_tokens: The largest number of tokens of the answer; by default the free places of the cache.
            sampling: How tokens are chosen; by default the one with the largest score.
            template: Whether to put the text around the prompt that the file has for that.

        Returns:
            An iterator of pieces of text.

        Raises:
            ValueError: The prompt is empty, no text in UTF-8, longer than the cache, or has tokens that the model does
                not know.
            TypeError: The prompt is no text.
            ModelError: The file's template fails.
            UnsupportedError: An operator of a prefill signature cannot run on the device.
            BuildError: The device's compiler fails.
        """
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}; 1 or more was expected")
        tokens = self.encode(prompt, template=template)
        room = min(self.decoder.cache_size, self.file.metadata.max_tokens or self.decoder.cache_size)
        if not tokens:
            raise ValueError("the prompt has no tokens, and the file no start token")
        if len(tokens) > room:
            raise ValueError(f"the prompt has {len(tokens)} tokens, and the model has room for {room}")
        if max(tokens) >= self.decoder.vocabulary:
            raise ValueError(
                f"the tokenizer gives token {max(tokens)}, and the model knows {self.decoder.vocabulary}; it belongs "
                "to another model"
            )
        sampling = sampling or Sampling()
        self.decoder.prepare(len(tokens) - 1, sampling)
        return Answer(self, tokens, room, max_tokens, sampling, self._stops)

    def generate(
        self, prompt: str, *, max_tokens: int | None = None, sampling: Sampling | None = None, template: bool = True
    ) -> str:
        """Return the whole answer to a prompt.

        Args:
            prompt: As of :meth:`stream`.
            max_tokens: As of :meth:`stream`.
            sampling: As of :meth:`stream`.
            template: As of :meth:`stream`.

        Returns:
            Its text.

        Raises:
            ValueError: As of :meth:`stream`.
            TypeError: The prompt is no text.
            ModelError: The file's template fails.
            DeviceError: The device fails.
        """
        return "".join(self.stream(prompt, max_tokens=max_tokens, sampling=sampling, template=template))

    def close(self) -> None:
        """Release the device's memory; answering afterwards is an error."""
        self.decoder.close()

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Answer(Iterator[str]):
    """The answer to a prompt: an iterator of pieces of text. Made by :meth:`Generator.stream`.

    Attributes:
        tokens: The tokens of the answer so far.
    """

    def __init__(
        self,
        generator: Generator,
        prompt: Sequence[int],
        room: int,
        max_tokens: int | None,
        sampling: Sampling,
        stops: Sequence[tuple[int, ...]],
    ) -> None:
        self.tokens: list[int] = []
        self._generator, self._prompt, self._stops = generator, prompt, stops
        self._last_position = room - 1
        self._limit = max_tokens
        self._sampler = Sampler(sampling)
        self._prefill_seconds = self._decode_seconds = 0.0
        self._end: End = "left"
        self._pieces = self._texts()

    @property
    def statistics(self) -> Statistics:
        """Statistics of the answer so far."""
        return Statistics(len(self._prompt), len(self.tokens), self._prefill_seconds, self._decode_seconds, self._end)

    def __next__(self) -> str:
        """Return the next piece of text, which is never empty."""
        return next(self._pieces)

    def _texts(self) -> Iterator[str]:
        text = TextOfTokens(self._generator.tokenizer, self._prompt)
        for token in self._told_tokens():
            if piece := text.add(token):
                yield piece
        if piece := text.finish():
            yield piece

    def _told_tokens(self) -> Iterator[int]:
        """Yield the tokens before the first stop. What may be the beginning of one is held back."""
        held: list[int] = []
        for token in self._new_tokens():
            held.append(token)
            if any(tuple(held[-len(stop) :]) == stop for stop in self._stops):
                stop = max((s for s in self._stops if tuple(held[-len(s) :]) == s), key=len)
                self._end = "stop token"
                yield from held[: -len(stop)]
                return
            while held and not self._may_become_stop(held):
                yield held.pop(0)
        yield from held

    def _may_become_stop(self, tokens: Sequence[int]) -> bool:
        return any(stop[: len(tokens)] == tuple(tokens) for stop in self._stops)

    def _new_tokens(self) -> Iterator[int]:
        decoder, prompt = self._generator.decoder, self._prompt
        begin = time.perf_counter()
        decoder.read(prompt[:-1])
        self._prefill_seconds = time.perf_counter() - begin
        room = self._last_position - len(prompt) + 2
        count = room if self._limit is None else min(room, self._limit)
        following = decoder.follow(prompt[-1], len(prompt) - 1, self._sampler, count)
        begin = time.perf_counter()
        for token in following:
            self._decode_seconds += time.perf_counter() - begin
            self.tokens.append(token)
            yield token
            begin = time.perf_counter()
        self._end = "cache" if self._limit is None or room < self._limit else "max tokens"


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Open a ModelError names the file."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _check_language_model(file: LanguageFile) -> None:
    """Raise ModelError for another model, which needs no tokenizer, but another command."""
    try:
        signatures = read_signatures(file.model())
    except ModelError:  # compiling will say what is wrong
        return
    with _naming(file.path):
        language_steps(signatures)


def _check_texts(what: str, texts: object) -> None:
    """Raise TypeError for what is no sequence of texts, ValueError for an empty text."""
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not all(isinstance(each, str) for each in texts):
        raise TypeError(f"{what} is {texts!r}; a list of texts was expected")
    if "" in texts:
        raise ValueError(f"{what} has an empty text, which no answer could avoid; the text of a token was expected")


def _no_prompt(prompt: object) -> str:
    """Why something is no prompt."""
    kind = type(prompt).__name__
    if isinstance(prompt, bytes | bytearray):
        advice = "decode it, as by prompt.decode()"
    elif isinstance(prompt, list | tuple | dict):
        advice = "give the content of the last message, as messages[-1]['content']"
    else:
        advice = "give it as str"
    return f"the prompt is of type {kind}, and a text was expected: {advice}"


def _tokenizer(file: LanguageFile, given: str | PathLike[str] | Tokenizer | None) -> Tokenizer:
    if given is None:
        if file.tokenizer is None:
            _check_language_model(file)
            raise ValueError(f"{file.path} has no tokenizer; give one: a file of sentencepiece or tokenizers")
        return load_tokenizer(file.tokenizer, file.metadata.bytes_as_letters)
    if isinstance(given, str | PathLike):
        return load_tokenizer(tokenizer_data(Path(given).read_bytes()))
    return given
