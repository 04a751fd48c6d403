"""An engine: a file's model on its device, its tokenizer, and what the file says, for any number of sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from math import inf
from os import PathLike
from pathlib import Path
from typing import Self

import tflgpu
from tflgpu.errors import ModelError
from tflgpu.language.answer import Wish
from tflgpu.language.containers import LanguageFile, open_language_file
from tflgpu.language.grammars import Grammars
from tflgpu.language.language_steps import language_steps
from tflgpu.language.sampling import Constraint, Sampling, sampling_of
from tflgpu.language.text_session import Session
from tflgpu.language.token_decoder import TokenModel
from tflgpu.language.tokenizer import Tokenizer, check_texts, given_tokenizer, tokens_of, utf8_text
from tflgpu.model.reader import read_signatures


class Engine:
    """A language model that is ready to answer. It has the weights once, for any number of sessions and threads.

    A context manager.

    Attributes:
        file: The parts of the file.
        tokenizer: Text to tokens and back.
        model: The model on its device.
        start: Tokens before every text.
        stops: Ends of an answer, each of one or several tokens.
        room: How many tokens prompt and answer may have together.
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
            ModelError: The file or its tokenizer is damaged, its model is no language model, or the file asks for what
                is not supported.
            ValueError: There is no tokenizer, or a package that reads the file is not installed, or a stop is empty.
            TypeError: The stops are no texts.
            UnsupportedError: An operator cannot run on the device.
            DeviceError: There is no fitting device.
            BuildError: The device's compiler fails.
            OSError: A file cannot be read.
        """
        check_texts("stops", stops)
        self.file = open_language_file(path)
        metadata = self.file.metadata
        if tokenizer is None and self.file.tokenizer is None:
            _check_language_model(self.file)
        self.tokenizer = given_tokenizer(self.file, tokenizer)
        named = (*metadata.stops, *stops)
        self.stops = tuple(filter(None, (tokens_of(self.tokenizer, stop) for stop in named)))
        self.start = () if metadata.start is None else tokens_of(self.tokenizer, metadata.start)
        with _naming(self.file.path):
            self.model = TokenModel.compile(self.file.model(), options, cache_value=metadata.cache_value)
        self.room = min(self.model.cache_size, metadata.max_tokens or self.model.cache_size)

    @property
    def end_text(self) -> str:
        """The text of the first token that ends an answer, ``eos_token`` of templates; empty if there is none."""
        named = self.file.metadata.stops[:1]
        if named and isinstance(named[0], str):
            return named[0]
        return self.tokenizer.decode(self.stops[0]) if self.stops else ""

    @cached_property
    def grammars(self) -> Grammars:
        """Constraints for answers: JSON, regular expressions and grammars.

        Raises ValueError if the extra ``grammar`` is not installed, no token ends an answer, or the tokenizer is no
        file.
        """
        return Grammars(getattr(self.tokenizer, "file", None), self.stops)

    def session(self) -> Session:
        """Return a session, whose cache is empty.

        Raises:
            ValueError: The engine is closed.
            DeviceError: The device fails.
        """
        return Session(self.model.decoder, self.tokenizer, self.room)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, with the file's start token.

        Args:
            text: As the model reads it: what users say with what the file puts around it.

        Returns:
            Tokens.

        Raises:
            TypeError: The text is none.
            ValueError: The text has halves of characters, as Python reads bytes that are no UTF-8.
        """
        return [*self.start, *self.tokenizer.encode(utf8_text("the prompt", text))]

    def sampling(self, sampling: Sampling | None = None) -> Sampling:
        """Return how tokens are chosen: as the caller says it, or else the file, and without what the file forbids.

        Args:
            sampling: What the caller says.

        Returns:
            The same, or what the file says, with a bias of minus infinity for tokens that the file suppresses.

        Raises:
            ModelError: The file's sampler is not supported.
        """
        metadata = self.file.metadata
        chosen = sampling_of(metadata.sampler) if sampling is None else sampling
        suppressed = {token: -inf for token in metadata.suppressed if 0 <= token < self.model.vocabulary}
        return replace(chosen, bias={**chosen.bias, **suppressed}) if suppressed else chosen

    def wish(
        self,
        *,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        constraint: Constraint | None = None,
        likeliest: int | None = None,
    ) -> Wish:
        """Return what an answer shall be, for :meth:`Session.answer`.

        Args:
            sampling: How tokens are chosen; by default as the file says, or the one with the largest score.
            max_tokens: The largest number of tokens of the answer; by default the free places of the cache.
            stop: Texts that end the answer, beside the engine's stops. They are no part of it.
            constraint: What the answer has to be.
            likeliest: How many of the likeliest tokens the answer names for each of its tokens; None for none.

        Returns:
            All of it, with the engine's stops.

        Raises:
            ValueError: A value cannot be.
            TypeError: The stops are no texts.
            ModelError: The file's sampler is not supported.
        """
        check_texts("stop", stop)
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}; 1 or more was expected")
        if likeliest is not None and not 0 <= likeliest <= self.model.vocabulary:
            raise ValueError(f"likeliest is {likeliest}; 0 to {self.model.vocabulary} was expected")
        chosen = self.sampling(sampling)
        if chosen.bias and max(chosen.bias) >= self.model.vocabulary:
            raise ValueError(f"bias has token {max(chosen.bias)}, and the model knows {self.model.vocabulary} tokens")
        return Wish(chosen, self.stops, max_tokens, tuple(stop), constraint, likeliest)

    def close(self) -> None:
        """Release the device's memory; answering afterwards is an error."""
        self.model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
