"""Tokens that the device chooses, and steps that begin before the token is known that they read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.language.known_models import let_files_hold
from tests.language.language_files import bytes_tokenizer
from tflgpu.language import Generator, Sampling, TokenDecoder, TokenModel
from tflgpu.language.sampler_model import CHOSEN, DRAW, NEXT, SCORES, TOTAL, sampler_model
from tflgpu.language.sampling import Sampler

GREEDY = Sampling()
OF_LARGEST = Sampling(temperature=1.5, top_k=5, seed=3)
OF_ALL = Sampling(temperature=0.8, seed=4)

OF_LIKELIEST = Sampling(temperature=1.2, top_k=9, top_p=0.7, min_p=0.05, seed=5, bias={3: -inf, 5: 1.5})

PROMPT = [5, 3, 8, 13, 77, 21]


@pytest.mark.parametrize("vocabulary", [7, 150, 4099])
@pytest.mark.parametrize("sampling", [GREEDY, OF_LARGEST, OF_ALL, OF_LIKELIEST])
def test_the_device_chooses_as_numpy_does(device_name: str, sampling: Sampling, vocabulary: int) -> None:
    """Equal scores are among them, and tokens that have no probability."""
    options = tflgpu.Options(device=device_name, precision="fp32", fallback="forbid", cache="off")
    host, draw = Sampler(sampling), np.random.default_rng(vocabulary)
    chosen = set()
    with tflgpu.compile(sampler_model(sampling, (1, 1, vocabulary), (1, 1)), options) as model:
        for place in range(24):
            scores = 2 * draw.standard_normal((1, 1, vocabulary), np.float32)
            if place % 2:
                scores = np.round(scores)
            if place % 3 == 0:
                scores[..., ::2] = -np.inf
            inputs = {SCORES: scores} | ({DRAW: np.full((1, 1), host.draw(place), np.float32)} if sampling.seed else {})
            outputs = model.run(inputs)
            assert outputs[CHOSEN].tolist() == outputs[NEXT].ravel().tolist() == [host.choose(scores, place)]
            assert outputs[TOTAL][0] < np.inf
            chosen.add(int(outputs[CHOSEN][0]))
        assert len(chosen) > 2
        scores[..., 2] = np.nan
        assert np.isnan(model.run(inputs)[TOTAL][0])


@pytest.fixture(scope="module")
def model(shared: Path) -> bytes:
    """A decoder of two layers, 150 tokens and a cache of 100 places."""
    return (shared / "language" / "decoder_float.tflite").read_bytes()


@pytest.fixture(scope="module")
def decoders(model: bytes, device_name: str) -> Iterator[tuple[TokenDecoder, TokenDecoder]]:
    """One that runs ahead, and one that does not."""
    options = tflgpu.Options(device=device_name, precision="fp32")
    both = tuple(TokenDecoder.compile(model, options, ahead=ahead) for ahead in (True, False))
    yield both[0], both[1]
    for decoder in both:
        decoder.close()


@pytest.mark.parametrize("sampling", [GREEDY, OF_LARGEST, OF_ALL])
def test_tokens_are_those_that_the_host_chooses(
    decoders: tuple[TokenDecoder, TokenDecoder], sampling: Sampling
) -> None:
    answers = []
    assert [decoder._runs.chain(sampling) is None for decoder in decoders] == [False, True]
    for decoder in decoders:
        decoder.read(PROMPT[:-1])
        answers.append(list(decoder.follow(PROMPT[-1], len(PROMPT) - 1, Sampler(sampling), 40)))
    assert answers[0] == answers[1]
    assert len(answers[0]) == 40 and len(set(answers[0])) > 2


def test_a_text_goes_on_after_an_answer_that_was_left(decoders: tuple[TokenDecoder, TokenDecoder]) -> None:
    """A step in vain leaves a row of the cache that the next step writes anew."""
    for told in (1, 4):
        ahead, other = decoders
        ahead.read(PROMPT[:-1])
        said = list(islice(ahead.follow(PROMPT[-1], len(PROMPT) - 1, Sampler(OF_LARGEST), 40), told))
        text = [*PROMPT, *said[:-1], 9, 44]  # which is not what the step in vain has read
        for position in range(len(text) - 2, len(text)):
            found = ahead.step(text[position], position)
        other.read(text[:-1])
        expected = other.step(text[-1], len(text) - 1)
        assert np.abs(found - expected).max() <= 1e-5 * np.ptp(expected)


def test_prompts_one_after_another(
    decoders: tuple[TokenDecoder, TokenDecoder], model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one ends at a stop token, with a step in vain under way."""
    (tmp_path / "model.tflite").write_bytes(model)
    (tmp_path / "tokenizer.json").write_bytes(bytes_tokenizer())
    answers = []
    for decoder in decoders:
        steps = decoder._model
        let_files_hold(monkeypatch, TokenModel(steps._steps, steps._compiled))  # type: ignore[union-attr]
        generator = Generator(tmp_path / "model.tflite", tokenizer=tmp_path / "tokenizer.json")
        said = generator.stream("how fast is it", max_tokens=8, sampling=OF_ALL)
        text = "".join(said)
        generator.stops = ((said.tokens[3],),)
        stopped = generator.stream("how fast is it", max_tokens=8, sampling=OF_ALL)
        answers.append((text, said.tokens, "".join(stopped), generator.generate("and how fast is that", max_tokens=8)))
        assert stopped.statistics.end == "stop token" and len(stopped.tokens) <= 4
    assert answers[0] == answers[1]


def test_an_answer_up_to_the_last_place_of_the_cache(decoders: tuple[TokenDecoder, TokenDecoder]) -> None:
    answers = []
    for decoder in decoders:
        decoder.read([3] * 89)
        answers.append(list(decoder.follow(3, 89, Sampler(GREEDY), 11)))
    assert answers[0] == answers[1]
