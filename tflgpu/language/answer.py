"""An answer to a prompt, which comes piece by piece."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tflgpu.language.reply_parts import TextUntilStop
from tflgpu.language.sampling import Constraint, Sampler, Sampling, TokenLikelihood
from tflgpu.language.token_decoder import TokenDecoder
from tflgpu.language.tokenizer import TextOfTokens, Tokenizer

End = Literal["stop token", "max tokens", "cache", "left"]


@dataclass(frozen=True)
class Statistics:
    """Statistics of an answer.

    Attributes:
        prompt_tokens: Tokens of the prompt, with what the file puts around it.
        new_tokens: Tokens of the answer, a stop token included.
        prefill_seconds: Seconds to read the prompt, without its last token.
        decode_seconds: Seconds for the answer.
        end: Why it ended: ``"stop token"``, also of a stop text, ``"max tokens"``, ``"cache"`` if the cache is full,
            ``"left"`` if the caller left it, or has not read all of it yet.
        kept_tokens: How many of the prompt's tokens the cache had, which were not read again.
    """

    prompt_tokens: int
    new_tokens: int
    prefill_seconds: float
    decode_seconds: float
    end: End
    kept_tokens: int = 0

    @property
    def prefill_rate(self) -> float:
        """Tokens of the prompt for each second."""
        read = self.prompt_tokens - 1 - self.kept_tokens
        return read / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens of the answer for each second."""
        return self.new_tokens / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True)
class Wish:
    """Description of one answer: its limits, and how its tokens are chosen.

    stops: ends of an answer, as tokens. stop_texts: ends by their text, in whatever tokens. likeliest: as of a Sampler.
    """

    sampling: Sampling
    stops: Sequence[tuple[int, ...]]
    max_tokens: int | None = None
    stop_texts: Sequence[str] = ()
    constraint: Constraint | None = None
    likeliest: int | None = None


class Decoding:
    """Work for one answer, without who asked for it."""

    def __init__(
        self, decoder: TokenDecoder, tokenizer: Tokenizer, prompt: Sequence[int], room: int, wish: Wish
    ) -> None:
        """room: how many tokens prompt and answer may have together."""
        self.tokens: list[int] = []
        self.told: list[int] = []  # without a stop
        self.is_left = False
        self.end: End = "left"
        self.prompt, self.kept = prompt, 0
        self.prefill_seconds = self.decode_seconds = 0.0
        self.sampler = Sampler(wish.sampling, wish.constraint, wish.likeliest)
        self._decoder, self._tokenizer, self._room, self._wish = decoder, tokenizer, room, wish

    def pieces(self) -> Iterator[str]:
        """Yield the text of the tokens before the first stop, as soon as it is known."""
        text, until = TextOfTokens(self._tokenizer, self.prompt), TextUntilStop(self._wish.stop_texts)
        for token in self._told_tokens():
            self.told.append(token)
            if piece := until.add(text.add(token)):
                yield piece
            if until.is_over:
                self.end = "stop token"
                return
        if piece := until.add(text.finish()) + until.finish():
            yield piece
        if until.is_over:
            self.end = "stop token"

    def _told_tokens(self) -> Iterator[int]:
        """Yield the tokens before the first stop. What may be the beginning of one is held back."""
        held: list[int] = []
        stops = self._wish.stops
        for token in self._new_tokens():
            held.append(token)
            if ending := [stop for stop in stops if tuple(held[-len(stop) :]) == stop]:
                self.end = "stop token"
                yield from held[: -max(map(len, ending))]
                return
            while held and not any(stop[: len(held)] == tuple(held) for stop in stops):
                yield held.pop(0)
        yield from held

    def _new_tokens(self) -> Iterator[int]:
        decoder, prompt, limit = self._decoder, self.prompt, self._wish.max_tokens
        begin = time.perf_counter()
        self.kept = len(prompt) - 1 - decoder.read(prompt[:-1])
        self.prefill_seconds = time.perf_counter() - begin
        room = self._room - len(prompt) + 1
        count = room if limit is None else min(room, limit)
        following = decoder.follow(prompt[-1], len(prompt) - 1, self.sampler, count)
        begin = time.perf_counter()
        for token in following:
            self.decode_seconds += time.perf_counter() - begin
            if self.is_left:
                return
            self.tokens.append(token)
            yield token
            if self._wish.constraint is not None and self._wish.constraint.is_over:
                self.end = "stop token"
                return
            begin = time.perf_counter()
        self.end = "cache" if limit is None or room < limit else "max tokens"


class Answer(Iterator[str], AsyncIterator[str]):
    """The answer to a prompt: an iterator of pieces of text, for ``for`` and ``async for``.

    Threads may read it in turns. An answer that is closed, dropped, or whose task is cancelled ends after the token
    that is being computed, and leaves its session to the next answer. Made by :meth:`Session.answer`,
    :meth:`Generator.stream` and :meth:`Conversation.stream`.
    """

    def __init__(self, work: Decoding, release: Callable[[], None]) -> None:
        """release: is called once, when the answer is over."""
        self._work, self._release = work, release
        self._pieces = work.pieces()
        self._lock = threading.Lock()
        self._is_over = False

    @property
    def tokens(self) -> list[int]:
        """The tokens of the answer so far, a stop included."""
        return self._work.tokens

    @property
    def told(self) -> list[int]:
        """The tokens of the text so far, without a stop."""
        return self._work.told

    @property
    def prompt(self) -> Sequence[int]:
        """The tokens before the answer."""
        return self._work.prompt

    @property
    def likelihoods(self) -> Sequence[TokenLikelihood]:
        """How likely each token was, if that was asked for."""
        return self._work.sampler.likelihoods[: len(self._work.tokens)]

    @property
    def statistics(self) -> Statistics:
        """Statistics of the answer so far."""
        work = self._work
        return Statistics(
            len(work.prompt), len(work.tokens), work.prefill_seconds, work.decode_seconds, work.end, work.kept
        )

    def __next__(self) -> str:
        """Return the next piece of text, which is never empty."""
        try:
            with self._lock:
                if self._is_over:
                    raise StopIteration
                try:
                    return next(self._pieces)
                except BaseException:
                    self._finish()
                    raise
        finally:
            if self._work.is_left:
                self.close()  # called while this token was computed

    async def __anext__(self) -> str:
        """Return the next piece of text, which a thread waits for."""
        try:
            piece = await asyncio.to_thread(next, self, None)
        except asyncio.CancelledError:
            self.close()
            raise
        if piece is None:
            raise StopAsyncIteration
        return piece

    def close(self) -> None:
        """End the answer. While a thread waits for a token, the answer ends after that token."""
        self._work.is_left = True
        if self._lock.acquire(blocking=False):
            try:
                self._finish()
            finally:
                self._lock.release()

    def _finish(self) -> None:
        """End the work, and leave the session to others. Called with the lock."""
        if not self._is_over:
            self._is_over = True
            self._pieces.close()  # type: ignore[attr-defined]
            self._release()

    def __del__(self) -> None:
        if hasattr(self, "_is_over"):
            self.close()
