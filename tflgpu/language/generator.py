"""Answers prompts: a file's model, tokenizer and stop tokens together, and sessions that are used again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from os import PathLike

import tflgpu
from tflgpu.language.answer import Answer, Wish
from tflgpu.language.language_engine import Engine
from tflgpu.language.prompt import written_prompt
from tflgpu.language.sampling import Sampling
from tflgpu.language.text_session import Session
from tflgpu.language.tokenizer import Tokenizer, utf8_text


class SessionPool:
    """A pool of sessions of one engine, which any thread may use. It grows to the number of simultaneous answers."""

    def __init__(self, engine: Engine) -> None:
        """Take the engine, which stays the caller's."""
        self._engine = engine
        self._free: list[Session] = []
        self._lock = threading.Lock()

    def answer(self, tokens: list[int], wish: Wish) -> Answer:
        """Answer a text in a session of its own, from an empty cache on: an answer depends on no earlier one.

        The errors are those of :meth:`Session.answer`, except BusyError.

        Args:
            tokens: The whole text.
            wish: The limits of the answer, and how its tokens are chosen.
        """
        with self._lock:
            session = self._free.pop() if self._free else None
        session = session or self._engine.session()
        try:
            session.rewind(0)
            return session.answer(tokens, wish, then=lambda: self._free.append(session))
        except BaseException:
            session.close()
            raise


class Generator(Engine):
    """Answers prompts with the language model of a file, each by itself. A context manager.

    Any number of answers may be read in turns and by threads: each has a session of its own.
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
            path: As of :class:`Engine`.
            options: As of :class:`Engine`.
            tokenizer: As of :class:`Engine`.
            stops: As of :class:`Engine`.

        Raises:
            ModelError: As of :class:`Engine`.
            ValueError: As of :class:`Engine`.
            TypeError: The stops are no texts.
            UnsupportedError: An operator cannot run on the device.
            DeviceError: There is no fitting device.
            BuildError: The device's compiler fails.
            OSError: A file cannot be read.
        """
        super().__init__(path, options, tokenizer=tokenizer, stops=stops)
        self._sessions = SessionPool(self)

    def stream(
        self,
        prompt: str,
        *,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        template: bool = True,
        stop: Sequence[str] = (),
        likeliest: int | None = None,
    ) -> Answer:
        """Answer a prompt, piece by piece.

        Args:
            prompt: What a user says.
            max_tokens: The largest number of tokens of the answer; by default the free places of the cache.
            sampling: How tokens are chosen; by default as the file says, or the one with the largest score.
            template: Whether to put the text around the prompt that the file has for that.
            stop: Texts that end the answer, and are no part of it.
            likeliest: How many of the likeliest tokens ``answer.likelihoods`` has for each token; None for none.

        Returns:
            An iterator of pieces of text.

        Raises:
            ValueError: The prompt is empty, no text in UTF-8, longer than the cache, or has tokens that the model does
                not know; or a limit cannot be.
            TypeError: The prompt is no text.
            ModelError: The file's template fails, or its sampler is not supported.
            UnsupportedError: An operator of a prefill signature cannot run on the device.
            BuildError: The device's compiler fails.
        """
        wish = self.wish(sampling=sampling, max_tokens=max_tokens, stop=stop, likeliest=likeliest)
        text = utf8_text("the prompt", prompt)
        if template:
            text = written_prompt(self.file.metadata, text)
        return self._sessions.answer(self.encode(text), wish)

    def generate(
        self,
        prompt: str,
        *,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        template: bool = True,
        stop: Sequence[str] = (),
    ) -> str:
        """Return the whole answer to a prompt.

        Args:
            prompt: As of :meth:`stream`.
            max_tokens: As of :meth:`stream`.
            sampling: As of :meth:`stream`.
            template: As of :meth:`stream`.
            stop: As of :meth:`stream`.

        Returns:
            Its text.

        Raises:
            ValueError: As of :meth:`stream`.
            TypeError: The prompt is no text.
            ModelError: As of :meth:`stream`.
            DeviceError: The device fails.
        """
        return "".join(self.stream(prompt, max_tokens=max_tokens, sampling=sampling, template=template, stop=stop))
