"""Session of LiteRT-LM: one text, without roles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Self

from tflgpu import language
from tflgpu.language import Answer, Sampling
from tflgpu.litert_lm.benchmark_times import benchmark_info
from tflgpu.litert_lm.configs import BenchmarkInfo, Responses


class Session:
    """One text that grows by what is read and answered. A context manager."""

    def __init__(
        self,
        engine: language.Engine,
        seconds: float,
        has_template: bool,
        sampling: Sampling | None,
        max_tokens: int | None,
    ) -> None:
        """Take an engine that was ready after ``seconds``, and how it answers."""
        self._engine, self._seconds, self._has_template = engine, seconds, has_template
        self._sampling, self._max_tokens = sampling, max_tokens
        self._session = engine.session()
        self._tokens: list[int] = []
        self._is_turn_open = False  # whether the user says something
        self._answer: Answer | None = None

    def run_prefill(self, contents: Sequence[str]) -> None:
        """Read what a user says. Further calls go on with it.

        Args:
            contents: Texts.

        Raises:
            ValueError: The text is longer than the cache.
            BusyError: An answer is not over.
            DeviceError: The device fails.
        """
        text = "".join(contents)
        if self._has_template and not self._is_turn_open:
            text = self._engine.file.metadata.user.prefix + text
        self._is_turn_open = True
        self._add(text)
        self._session.read(self._tokens)

    def run_decode(self) -> Responses:
        """Return the answer to all that was read.

        Raises:
            ValueError: Nothing was read.
            BusyError: An answer is not over.
            DeviceError: The device fails.
        """
        return Responses(texts=["".join(self._pieces())])

    def run_decode_async(self) -> Iterator[Responses]:
        """Yield the pieces of the answer to all that was read. Raises what :meth:`run_decode` does."""
        for piece in self._pieces():
            yield Responses(texts=[piece])

    def run_text_scoring(self, target_text: Sequence[str], store_token_lengths: bool = False) -> Responses:
        """Return how likely the model holds texts after what was read, each by itself.

        Args:
            target_text: The texts.
            store_token_lengths: Whether the result has the number of their tokens.

        Raises:
            ValueError: Nothing was read, or a text is longer than the cache.
            BusyError: An answer is not over.
            DeviceError: The device fails.
        """
        found = Responses(texts=list(target_text))
        for text in target_text:
            tokens = self._engine.tokenizer.encode(text)
            scores = self._session.score(self._tokens, tokens)
            found.token_scores.append(scores)
            found.scores.append(math.fsum(scores))
            if store_token_lengths:
                found.token_lengths.append(len(tokens))
        return found

    def get_benchmark_info(self) -> BenchmarkInfo:
        """Return the times of the last answer. Raises RuntimeError without one."""
        return benchmark_info(self._seconds, None if self._answer is None else self._answer.statistics)

    def cancel_process(self) -> None:
        """End the answer that is under way; from another thread, too."""
        if self._answer is not None:
            self._answer.close()

    def close(self) -> None:
        """Release the memory of the cache."""
        self._session.close()

    def _pieces(self) -> Iterator[str]:
        metadata = self._engine.file.metadata
        if self._has_template and self._is_turn_open:
            self._add(metadata.user.suffix + metadata.model.prefix)
        self._is_turn_open = False
        wish = self._engine.wish(sampling=self._sampling, max_tokens=self._max_tokens)
        answer = self._answer = self._session.answer(self._tokens, wish)
        yield from answer
        self._tokens = [*answer.prompt, *answer.told]
        if self._has_template:
            self._add(metadata.model.suffix)

    def _add(self, text: str) -> None:
        if not text and self._tokens:
            return
        tokens = self._engine.tokenizer.encode(text)
        self._tokens = [*(self._tokens or self._engine.start), *tokens]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
