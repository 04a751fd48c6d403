"""A session of an engine: one text, with its own cache of keys and values."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from tflgpu.language.answer import Answer, Decoding, Wish
from tflgpu.language.sampling import likelihood
from tflgpu.language.token_decoder import TokenDecoder
from tflgpu.language.tokenizer import Tokenizer


class BusyError(RuntimeError):
    """An answer or another call of the session is not over."""


class Session:
    """One text that a model reads and goes on with, in a cache of its own. A context manager.

    Sessions of one engine may be used by threads of their own and in any order: each answers as if it were alone. A
    session has one answer at a time. While that is not over, another one, and every other call but :meth:`close`,
    raises BusyError, a RuntimeError. Made by :meth:`Engine.session`.

    Attributes:
        room: How many tokens the text may have.
    """

    def __init__(self, decoder: Callable[[], TokenDecoder], tokenizer: Tokenizer, room: int) -> None:
        """Take a function that makes a decoder with an empty cache, a tokenizer, and the room."""
        self.room = room
        self._new, self._tokenizer = decoder, tokenizer
        self._decoder = decoder()
        self._turn = threading.Lock()  # of the one call or answer that is under way
        self._answer: weakref.ref[Answer] | None = None
        self._is_closed = False

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens of the text whose keys and values the cache has."""
        return self._decoder.tokens

    def answer(self, tokens: Sequence[int], wish: Wish, then: Callable[[], None] | None = None) -> Answer:
        """Go on with a text. What the cache has of its beginning is not read again.

        Args:
            tokens: Of the whole text so far.
            wish: Of :meth:`Engine.wish`.
            then: Called once, when the answer is over.

        Returns:
            An iterator of pieces of text. The text is read when the first one is asked for.

        Raises:
            ValueError: There are no tokens, more than the session has room for, or some that the model does not know;
                or the session is closed.
            BusyError: An answer or a call of the session is not over.
            UnsupportedError: An operator of a prefill signature cannot run on the device.
            BuildError: The device's compiler fails.
        """
        self._check(tokens)
        with self._taking_turn() as keep:
            self._decoder.prepare(len(tokens) - 1, wish.sampling, begin=self._decoder.kept(tokens[:-1]))
            work = Decoding(self._decoder, self._tokenizer, list(tokens), self.room, wish)
            answer = Answer(work, partial(self._over, then))
            self._answer = weakref.ref(answer)
            keep()
            return answer

    def read(self, tokens: Sequence[int]) -> int:
        """Let the cache have a text, so that an answer to it, or to a longer one, begins sooner.

        Args:
            tokens: Of the whole text.

        Returns:
            How many of them were read; the cache had the others.

        Raises:
            ValueError: As of :meth:`answer`.
            BusyError: As of :meth:`answer`.
            DeviceError: The device fails.
        """
        self._check(tokens)
        with self._taking_turn():
            return self._read(tokens)

    def score(self, tokens: Sequence[int], following: Sequence[int]) -> list[float]:
        """Return how likely the model holds tokens after a text. The cache has both afterwards.

        Args:
            tokens: Of the whole text.
            following: Those that come next.

        Returns:
            The natural logarithm of each one's probability.

        Raises:
            ValueError: As of :meth:`answer`.
            BusyError: As of :meth:`answer`.
            DeviceError: The device fails.
        """
        self._check([*tokens, *following])
        with self._taking_turn():
            self._read(tokens[:-1])
            found, text = [], list(tokens)
            for token in following:
                scores = self._decoder.step(text[-1], len(text) - 1)
                found.append(likelihood(scores, token).log_probability)
                text.append(token)
            return found

    def rewind(self, count: int) -> None:
        """Go back to an earlier place of the text.

        Args:
            count: How many of its first tokens stay.

        Raises:
            ValueError: The text has fewer tokens, or the session is closed.
            BusyError: An answer or a call of the session is not over.
            DeviceError: The device fails.
        """
        with self._taking_turn():
            tokens = self._decoder.tokens
            if not 0 <= count <= len(tokens):
                raise ValueError(f"the text has {len(tokens)} tokens; it cannot go back to {count} of them")
            self._read(tokens[:count])

    def _read(self, tokens: Sequence[int]) -> int:
        self._decoder.prepare(len(tokens), begin=self._decoder.kept(tokens))
        return self._decoder.read(tokens)

    def copy(self) -> Session:
        """Return another session, whose text begins as this one does now.

        Raises:
            ValueError: The session is closed.
            BusyError: An answer or a call of the session is not over.
            DeviceError: The device fails.
        """
        with self._taking_turn():
            other = Session(self._new, self._tokenizer, self.room)
            other._decoder.copy(self._decoder)
            return other

    def close(self) -> None:
        """Release the memory of the cache. An answer that is not over ends; one that a thread waits for, after its next
        token."""
        self._is_closed = True
        answer = None if self._answer is None else self._answer()
        if answer is not None:
            answer.close()
        if self._turn.acquire(blocking=False):
            self._leave()

    @contextmanager
    def _taking_turn(self) -> Iterator[Callable[[], None]]:
        """Raise BusyError while another call or an answer is under way, ValueError if the session is closed.

        Yields a function after whose call the turn goes on when the block is left.
        """
        if not self._turn.acquire(blocking=False):
            raise BusyError(
                "an answer of this session is not over: read it to its end or close it, or use another session"
            )
        kept = False

        def keep() -> None:
            nonlocal kept
            kept = True

        try:
            if self._is_closed:
                raise ValueError("this session is closed")
            yield keep
        finally:
            if not kept:
                self._leave()

    def _over(self, then: Callable[[], None] | None) -> None:
        self._leave()
        if then is not None:
            then()

    def _leave(self) -> None:
        """End a turn. The one that finds the session closed releases its memory."""
        if self._is_closed:
            self._decoder.close()
        self._turn.release()
        if self._is_closed and self._turn.acquire(blocking=False):  # closed in between
            self._decoder.close()
            self._turn.release()

    def _check(self, tokens: Sequence[int]) -> None:
        """Raise ValueError for a text that the model cannot read."""
        if not tokens:
            raise ValueError("the prompt has no tokens, and the file no start token")
        if len(tokens) > self.room:
            raise ValueError(f"the prompt has {len(tokens)} tokens, and the model has room for {self.room}")
        if max(tokens) >= self._decoder.vocabulary:
            raise ValueError(
                f"the tokenizer gives token {max(tokens)}, and the model knows {self._decoder.vocabulary}; it belongs "
                "to another model"
            )

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
