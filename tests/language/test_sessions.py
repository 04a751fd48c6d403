"""Sessions of one engine: in turns, by threads and tasks, copied and left, each answers as if it were alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.language.known_models import CACHE, VOCABULARY, decoder, known_answer
from tests.language.language_files import bytes_tokenizer
from tflgpu.language import Answer, BusyError, Engine, Sampling, Session
from tflgpu.language.answer import Wish
from tflgpu.language.containers import tokenizer_data
from tflgpu.language.tokenizer import load_tokenizer

TOKENIZER = load_tokenizer(tokenizer_data(bytes_tokenizer()))

PROMPT = [5, 3, 8, 13, 77, 21]


def session() -> Session:
    return Session(lambda: decoder()[0], TOKENIZER, CACHE)


def wish(max_tokens: int | None = None, seed: int | None = None, stops: tuple[str, ...] = ()) -> Wish:
    return Wish(Sampling() if seed is None else Sampling(temperature=1.0, seed=seed), (), max_tokens, stops)


@dataclass
class Played:
    """A session, what was done with it, and what came of that."""

    session: Session = field(default_factory=session)
    answer: Answer | None = None
    done: list[tuple[str, Any]] = field(default_factory=list)
    results: list[object] = field(default_factory=list)

    def play(self, act: str, given: Any) -> None:
        self.done.append((act, given))
        try:
            result = getattr(self, act)(*given)
        except (BusyError, ValueError, StopIteration) as error:
            result = f"{type(error).__name__}: {error}"
        self.results.append(result)

    def begin(self, prompt: list[int], wanted: Wish) -> None:
        self.answer = self.session.answer(prompt, wanted)

    def go_on(self, count: int) -> object:
        if self.answer is None:
            return None
        pieces = list(islice(self.answer, count))
        return pieces, list(self.answer.tokens), self.answer.statistics.end, self.session.tokens

    def leave(self) -> None:
        if self.answer is not None:
            self.answer.close()

    def drop(self) -> None:
        self.answer = None

    def rewind(self, count: int) -> object:
        self.session.rewind(count)
        return self.session.tokens

    def read(self, tokens: list[int]) -> object:
        return self.session.read(tokens), self.session.tokens

    def end(self) -> None:
        self.session.close()


def drawn_act(draw: np.random.Generator, text: list[int]) -> tuple[str, Any]:
    """An act on a session whose text begins as ``text`` does."""
    kept = text[: int(draw.integers(len(text) + 1))]
    longer = [*kept, *draw.integers(0, VOCABULARY, int(draw.integers(1, 12))).tolist()]
    limit = int(draw.integers(1, 9)) if draw.random() < 0.8 else None
    acts: dict[str, Any] = {
        "begin": (longer, wish(limit, int(draw.integers(9)) if draw.random() < 0.5 else None)),
        "go_on": (int(draw.integers(1, 5)),),
        "leave": (),
        "drop": (),
        "rewind": (int(draw.integers(len(text) + 2)),),
        "read": (longer,),
        "end": (),
    }
    name = draw.choice(list(acts), p=[0.3, 0.4, 0.06, 0.06, 0.07, 0.08, 0.03])
    return str(name), acts[str(name)]


@pytest.mark.parametrize("part", range(5))
def test_drawn_schedules_are_as_each_session_alone(part: int) -> None:
    """100 of them, with sessions that are copied, left half way and closed."""
    for seed in range(100 * part, 100 * part + 100):
        draw = np.random.default_rng(seed)
        played = [Played() for _ in range(int(draw.integers(1, 4)))]
        for _ in range(int(draw.integers(10, 40))):
            one = played[int(draw.integers(len(played)))]
            if draw.random() < 0.06 and (one.answer is None or one.answer.statistics.end != "left"):
                try:
                    copy = one.session.copy()
                except (BusyError, ValueError):
                    continue
                played.append(Played(copy, one.answer, [*one.done], [*one.results]))
                continue
            one.play(*drawn_act(draw, list(one.session.tokens)))
        for one in played:
            alone = Played()
            for act in one.done:
                alone.play(*act)
            assert alone.results == one.results, f"schedule {seed}"


def test_two_answers_of_one_session_are_refused() -> None:
    one = session()
    answer = one.answer(PROMPT, wish(9))
    said = [next(answer)]
    for call in (lambda: one.answer(PROMPT, wish()), lambda: one.read(PROMPT), lambda: one.rewind(0), one.copy):
        with pytest.raises(BusyError, match="an answer of this session is not over: read it to its end or close it"):
            call()
    said += list(answer)
    assert answer.tokens == known_answer(PROMPT, 9) and "".join(said)
    one.answer(PROMPT, wish()).close()
    one.answer(PROMPT, wish())  # which nobody has
    half = one.answer(PROMPT, wish(9))
    next(half)
    del half
    assert one.rewind(2) is None and one.tokens == tuple(PROMPT[:2])


def test_a_closed_session() -> None:
    one = session()
    answer = one.answer(PROMPT, wish())
    next(answer)
    one.close()
    assert list(answer) == [] and answer.statistics.end == "left"
    with pytest.raises(ValueError, match="this session is closed"):
        one.answer(PROMPT, wish())
    one.close()


def test_only_new_tokens_are_read() -> None:
    made, runs = decoder()
    one = Session(lambda: made, TOKENIZER, CACHE)
    answer = one.answer(PROMPT, wish(4))
    list(answer)
    text = [*PROMPT, *answer.tokens]
    runs.ran.clear()
    longer = one.answer([*text, 9, 44], wish(3))
    list(longer)
    assert runs.ran[0] == ("prefill_8", len(text) - 1) and longer.statistics.kept_tokens == len(text) - 1
    assert longer.tokens == known_answer([*text, 9, 44], 3)
    changed = one.answer([*text[:-2], 1, 2, 3], wish(3))
    list(changed)
    assert changed.statistics.kept_tokens == len(text) - 2
    assert changed.tokens == known_answer([*text[:-2], 1, 2, 3], 3)


def test_a_session_whose_device_failed_reads_all_of_its_text() -> None:
    def failing(_: list[int]) -> int:
        raise tflgpu.DeviceError("no memory")

    made, runs = decoder()
    one = Session(lambda: made, TOKENIZER, CACHE)
    answer, rule = one.answer(PROMPT, wish(9)), runs.rule
    next(answer)
    runs.rule = failing
    with pytest.raises(tflgpu.DeviceError, match="no memory"):
        list(answer)
    runs.cache[:], runs.rule = 7, rule
    again = one.answer(PROMPT, wish(9))
    list(again)
    assert again.tokens == known_answer(PROMPT, 9)


def test_stop_texts() -> None:
    one = session()
    whole = "".join(one.answer(PROMPT, wish(12)))
    for begin in range(1, len(whole) - 3):
        stop = whole[begin : begin + 3]
        answer = one.answer(PROMPT, wish(12, stops=(stop, "no such text")))
        assert "".join(answer) == whole[: whole.index(stop)] and answer.statistics.end == "stop token"
    assert "".join(one.answer(PROMPT, wish(12, stops=(whole[-2:] + "~",)))) == whole


@pytest.fixture(scope="module")
def engine(shared: Path, device_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    path = tmp_path_factory.mktemp("engine") / "tokenizer.json"
    path.write_bytes(bytes_tokenizer())
    options = tflgpu.Options(device=device_name, precision="fp32")
    with Engine(shared / "language/decoder_float.tflite", options, tokenizer=path) as engine:
        yield engine


def turns(session: Session, engine: Engine, first: int) -> list[list[int]]:
    """Three turns of a text, of which each goes on with the one before, the last one anew."""
    text, said = [first, 3, 8, 13], []
    for turn in range(3):
        wanted = engine.wish(max_tokens=5, sampling=Sampling(temperature=1.0, top_k=9, seed=turn) if turn else None)
        answer = session.answer(text, wanted)
        list(answer)
        said.append(list(answer.tokens))
        text = [*text, *answer.tokens, 7] if turn == 0 else [first, 3, 9]
    return said


def test_threads(engine: Engine) -> None:
    alone = [turns(engine.session(), engine, first) for first in range(6)]
    with ThreadPoolExecutor(6) as pool:
        sessions = [engine.session() for _ in range(6)]
        assert list(pool.map(turns, sessions, [engine] * 6, range(6))) == alone


def test_tasks(engine: Engine) -> None:
    """One of them is cancelled; its session answers the next prompt."""
    wanted = engine.wish(max_tokens=10)
    alone = ["".join(engine.session().answer([first, 3], wanted)) for first in range(3)]

    async def read(session: Session, first: int) -> str:
        return "".join([piece async for piece in session.answer([first, 3], wanted)])

    async def all_of_them() -> list[str]:
        sessions = [engine.session() for _ in range(3)]
        tasks = [asyncio.create_task(read(session, 9 - n)) for n, session in enumerate(sessions)]
        await asyncio.sleep(0.005)
        for task in tasks:
            task.cancel()
        assert {type(each) for each in await asyncio.gather(*tasks, return_exceptions=True)} <= {
            asyncio.CancelledError,
            str,
        }
        return list(await asyncio.gather(*(free(session, n) for n, session in enumerate(sessions))))

    async def free(session: Session, first: int) -> str:
        while True:  # the token that was computed when its task was cancelled may not be over
            try:
                return await read(session, first)
            except BusyError:
                await asyncio.sleep(0.005)

    assert asyncio.run(all_of_them()) == alone
