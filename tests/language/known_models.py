"""A language model of which each token is known, and which checks how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tflgpu.language import Sampling, TokenDecoder, Tokenizer, TokenModel
from tflgpu.language.language_steps import LanguageSteps, Step

CACHE, VOCABULARY = 100, 150


Rule = Callable[[list[int]], int]  # the next token of a text


class Known:
    """A model whose next token is a number of all tokens before, which its cache holds. It notes what it runs."""

    def __init__(self, mask: bool, size: int = CACHE, rule: Rule | None = None) -> None:
        self.mask, self.size, self.rule = mask, size, rule or known_token
        self.cache = np.full(size, -1)
        self.ran: list[tuple[str, int]] = []
        self.opened = {"decode"}
        self.closed = False

    def open(self, signature: str) -> None:
        self.opened.add(signature)

    def run(self, signature: str, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        tokens, positions = inputs["tokens"], inputs["input_pos"]
        assert tokens.dtype == positions.dtype == np.int32 and tokens.shape == (1, positions.size)
        begin, size = int(positions[0]), positions.size
        assert signature in self.opened
        assert begin + size <= self.size, "DYNAMIC_UPDATE_SLICE would move the rows"
        assert all(after == before + 1 for before, after in pairwise(positions.tolist()))
        self.ran.append((signature, begin))
        self.cache[begin : begin + size] = tokens[0]
        if self.mask:
            seen = inputs["mask"] == 0
            assert seen.shape == (1, 1, size, self.size)
            assert (seen[0, 0].sum(axis=1) == positions + 1).all()
        scores = np.zeros((1, 1, VOCABULARY), np.float32)
        scores[0, 0, self.rule(self.cache[: begin + 1].tolist())] = 1
        return {"logits": scores}

    def chain(self, _: Sampling) -> None:
        """There is none: the host chooses."""

    def reset(self) -> None:
        self.cache[:] = -1

    def values(self) -> dict[str, NDArray[Any]]:
        return {"kv_cache_k_0": self.cache.copy()}

    def set(self, values: Mapping[str, NDArray[Any]]) -> None:
        self.cache = values["kv_cache_k_0"]

    def close(self) -> None:
        self.closed = True


def known_token(text: list[int]) -> int:
    return int(sum((i + 1) * token for i, token in enumerate(text))) % VOCABULARY


def known_answer(prompt: list[int], count: int) -> list[int]:
    text = list(prompt)
    for _ in range(count):
        text.append(known_token(text))
    return text[len(prompt) :]


def decoder(
    sizes: tuple[int, ...] = (8, 32), *, mask: bool = False, size: int = CACHE, rule: Rule | None = None
) -> tuple[TokenDecoder, Known]:
    def step(name: str, size: int) -> Step:
        return Step(name, size, "tokens", "input_pos", "mask" if mask else None, "float32", ("kv_cache_k_0",))

    steps = LanguageSteps(step("decode", 1), tuple(step(f"prefill_{n}", n) for n in sizes), size, VOCABULARY, True)
    runs = Known(mask, size, rule)
    return TokenDecoder(steps, runs), runs


class KnownModel:
    """A TokenModel of known models, which it keeps."""

    vocabulary = VOCABULARY

    def __init__(self, size: int = CACHE, rule: Rule | None = None) -> None:
        self.cache_size, self.rule = size, rule
        self.made: list[Known] = []

    def decoder(self) -> TokenDecoder:
        made, runs = decoder(size=self.cache_size, rule=self.rule)
        self.made.append(runs)
        return made

    def close(self) -> None:
        for runs in self.made:
            runs.close()


def let_files_hold(monkeypatch: pytest.MonkeyPatch, model: KnownModel | TokenModel) -> None:
    """Let every file hold this model, whatever else is in it."""
    monkeypatch.setattr(TokenModel, "compile", lambda *_, **__: model)


def scripted(tokenizer: Tokenizer, stop: int, answers: Mapping[str, str]) -> Rule:
    """A rule: after a text that ends with a key the model says the value, and stops."""

    def next_token(tokens: list[int]) -> int:
        text = tokenizer.decode(tokens)
        place, asked = max((text.rfind(asked), asked) for asked in answers)
        rest = answers[asked].removeprefix(text[place + len(asked) :])
        return tokenizer.encode(rest)[0] if rest else stop

    return next_token
