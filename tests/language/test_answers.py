"""How a prompt is read and an answer decoded, on a model of which numpy knows every score."""

from __future__ import annotations

from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.language.known_models import (
    CACHE,
    VOCABULARY,
    KnownModel,
    decoder,
    known_answer,
    known_token,
    let_files_hold,
)
from tests.language.language_files import TEXT, bytes_tokenizer
from tests.safety.models import scaled
from tflgpu.language import Generator, Sampling
from tflgpu.language.sampling import Sampler


@pytest.fixture
def generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator:
    """A generator of the known model, in a file that is none."""
    let_files_hold(monkeypatch, KnownModel())
    (tmp_path / "model.tflite").write_bytes(b"")
    (tmp_path / "tokenizer.json").write_bytes(bytes_tokenizer())
    return Generator(tmp_path / "model.tflite", tokenizer=tmp_path / "tokenizer.json")


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("sizes", [(), (8,), (8, 32), (16, 96), (128,)])
def test_prompts_of_every_length(sizes: tuple[int, ...], mask: bool) -> None:
    """After each of them the next token is that of all tokens before, at their places."""
    decodes, _ = decoder(sizes, mask=mask)
    draw = np.random.default_rng(0)
    for length in range(1, CACHE):
        prompt = draw.integers(0, VOCABULARY, length).tolist()
        decodes.prepare(length - 1)
        decodes.read(prompt[:-1])
        assert int(decodes.step(prompt[-1], length - 1).argmax()) == known_token(prompt)


@pytest.mark.parametrize(
    ("length", "ran"),
    [
        (5, {"prefill_8": 1}),
        (8, {"prefill_8": 1}),
        (9, {"prefill_8": 1, "decode": 1}),  # one token is no prefill
        (25, {"prefill_32": 1}),  # the smallest would compute as many rows
        (32, {"prefill_32": 1}),
        (40, {"prefill_32": 1, "prefill_8": 1}),
        (99, {"prefill_32": 3, "decode": 3}),  # the cache has no room for 8 more
    ],
)
def test_the_largest_signature_that_computes_no_row_in_vain(length: int, ran: dict[str, int]) -> None:
    decodes, runs = decoder()
    decodes.prepare(length)
    decodes.read(list(range(length)))
    assert Counter(name for name, _ in runs.ran) == ran


def test_an_answer_is_what_the_model_says(generator: Generator) -> None:
    prompt = generator.encode("TensorFlow Lite")
    answer = generator.stream("TensorFlow Lite", max_tokens=12)
    text = "".join(answer)
    assert answer.tokens == known_answer(prompt, 12)
    assert text == generator.tokenizer.decode([*prompt, *answer.tokens])[len("TensorFlow Lite") :]
    assert generator.generate("TensorFlow Lite", max_tokens=12) == text
    statistics = answer.statistics
    assert (statistics.prompt_tokens, statistics.new_tokens, statistics.end) == (len(prompt), 12, "max tokens")


def test_an_answer_ends_where_the_cache_does(generator: Generator) -> None:
    prompt = generator.encode("TensorFlow Lite")
    answer = generator.stream("TensorFlow Lite")
    list(answer)
    assert answer.tokens == known_answer(prompt, CACHE - len(prompt) + 1), "the last one is not read any more"
    assert answer.statistics.end == "cache"


def test_stop_tokens(generator: Generator) -> None:
    """One token, several in a row, and the beginning of several that does not go on."""
    word, said = next(
        (word, said) for word in TEXT.split() if len(set(said := known_answer(generator.encode(word), 7))) == 7
    )
    prompt = generator.encode(word)
    cases = [
        ([(said[5],)], 5),
        ([(said[4], said[5])], 4),
        ([(said[4], said[5] ^ 1)], 7),
        ([(said[4], said[5], said[6] ^ 1), (said[5], said[6])], 5),
    ]
    for stops, told in cases:
        generator.stops = tuple(stops)
        answer = generator.stream(word, max_tokens=7)
        assert "".join(answer) == generator.tokenizer.decode([*prompt, *said[:told]])[len(word) :]
        assert answer.statistics.end == ("stop token" if told < 7 else "max tokens")


def test_an_answer_that_is_left(generator: Generator) -> None:
    answer = generator.stream("TensorFlow Lite")
    next(answer)
    assert answer.statistics.end == "left"
    with generator:
        pass
    assert [runs.closed for runs in generator.model.made] == [True]  # type: ignore[attr-defined]


def test_prompts_that_cannot_be_read(generator: Generator) -> None:
    with pytest.raises(ValueError, match="the prompt has no tokens, and the file no start token"):
        generator.stream("")
    with pytest.raises(ValueError, match=r"the prompt has \d+ tokens, and the model has room for 100"):
        generator.stream("word " * 100)
    with pytest.raises(ValueError, match="max_tokens is 0; 1 or more was expected"):
        generator.stream("a", max_tokens=0)
    for prompt in ([{"role": "user", "content": "a"}], b"a", None):
        with pytest.raises(TypeError, match=f"the prompt is of type {type(prompt).__name__}, and a text was expected"):
            generator.stream(prompt)  # type: ignore[arg-type]


def test_stops_and_models_that_cannot_be(generator: Generator) -> None:
    with pytest.raises(ValueError, match="stops has an empty text"):
        Generator(generator.file.path, tokenizer=generator.tokenizer, stops=[""])
    with pytest.raises(TypeError, match="stops is 'a'; a list of texts was expected"):
        Generator(generator.file.path, tokenizer=generator.tokenizer, stops="a")
    generator.file.path.write_bytes(scaled(2.0))
    with pytest.raises(tflgpu.ModelError, match=r"this is no language model.*`tflgpu run` runs it"):
        Generator(generator.file.path)


def test_a_model_file_needs_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(b"")
    with pytest.raises(ValueError, match="has no tokenizer; give one"):
        Generator(tmp_path / "model.tflite")


def test_drawn_tokens_have_the_probabilities_of_their_scores() -> None:
    scores = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))
    sampler = Sampler(Sampling(temperature=1.0, seed=0))
    drawn = np.bincount([sampler.choose(scores, place) for place in range(4000)], minlength=4) / 4000
    assert np.abs(drawn - [0.1, 0.4, 0.2, 0.3]).max() < 0.03
    sampler = Sampler(Sampling(temperature=0.5, top_k=2, seed=0))
    drawn = np.bincount([sampler.choose(scores, place) for place in range(4000)], minlength=4) / 4000
    assert np.abs(drawn - [0, 16 / 25, 0, 9 / 25]).max() < 0.03


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"top_p": 0.69}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_p": 0.71}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"top_p": 0.0}, [0, 1, 0, 0]),
        ({"min_p": 0.5}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"top_k": 3, "top_p": 0.7}, [0, 4 / 7, 0, 3 / 7]),
        ({"bias": {1: -inf, 0: float(np.log(3))}}, [3 / 8, 0, 2 / 8, 3 / 8]),
    ],
)
def test_who_may_be_drawn(wanted: dict[str, Any], expected: list[float]) -> None:
    scores = np.log(np.array([0.1, 0.4, 0.2, 0.3]))
    sampler = Sampler(Sampling(temperature=1.0, seed=0, **wanted))
    drawn = np.bincount([sampler.choose(scores, place) for place in range(3000)], minlength=4) / 3000
    assert np.abs(drawn - expected).max() < 0.03


def test_penalties_and_likelihoods() -> None:
    """Log probabilities of the tokens of an answer are those of the model's own scores."""
    scores = np.array([2.0, 1.5, 1.2, -1.0])
    rows = {
        (0, 1, 0, 0): {"repetition_penalty": 1.5},  # 2 / 1.5 is below 1.5, and above 1.2
        (0, 1, 2, 0): {"presence_penalty": 0.9},
        (0, 1, 0, 2): {"frequency_penalty": 0.6},
        (0, 1, 0, 1, 0): {"presence_penalty": 0.6, "penalty_window": 1},
    }
    for said, wanted in rows.items():
        sampler = Sampler(Sampling(**wanted), likeliest=2)
        assert tuple(sampler.choose(scores, place) for place in range(len(said))) == said, wanted
    logarithms = scores - np.log(np.exp(scores).sum())
    for likelihood in sampler.likelihoods:
        assert likelihood.log_probability == pytest.approx(logarithms[likelihood.token])
        assert likelihood.likeliest == ((0, pytest.approx(logarithms[0])), (1, pytest.approx(logarithms[1])))
    with pytest.raises(ValueError, match="all of them are forbidden"):
        Sampler(Sampling(bias=dict.fromkeys(range(4), -inf))).choose(scores, 0)


def test_a_seed_repeats_what_is_drawn() -> None:
    scores = np.random.default_rng(1).standard_normal(50)
    one, two, other = (Sampler(Sampling(temperature=1.0, seed=seed)) for seed in (3, 3, 4))
    drawn = [[sampler.choose(scores, place) for place in range(20)] for sampler in (one, two, other)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert Sampler(Sampling()).choose(scores, 0) == scores.argmax()


def test_sampling_that_cannot_be() -> None:
    for temperature in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"temperature is {temperature}"):
            Sampling(temperature=temperature)
    with pytest.raises(ValueError, match="need a temperature above 0"):
        Sampling(top_k=3)
    for name, value in {"top_p": 1.1, "repetition_penalty": 0, "presence_penalty": inf, "penalty_window": -1}.items():
        with pytest.raises(ValueError, match=f"{name} is {value}"):
            Sampling(temperature=1.0, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bias has inf for token 2"):
        Sampling(bias={2: inf})
    with pytest.raises(ValueError, match="top_k is 0"):
        Sampling(temperature=1.0, top_k=0)
    with pytest.raises(tflgpu.DeviceError, match="no numbers"):
        Sampler(Sampling()).choose(np.array([0, np.nan]), 0)
