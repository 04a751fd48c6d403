"""Text to tokens and back, by the packages that users have."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import pytest
from tokenizers import pre_tokenizers

import tflgpu
from tests.language.language_files import START, STOP, TEXT, bytes_tokenizer, pieces_tokenizer
from tflgpu.language.containers import TokenizerData, tokenizer_data
from tflgpu.language.tokenizer import Letters, TextOfTokens, load_tokenizer, tokens_of

MADE = {"tokenizers": bytes_tokenizer, "sentencepiece": pieces_tokenizer}


@pytest.mark.parametrize("package", MADE)
def test_text_comes_back_token_by_token(package: str) -> None:
    data = tokenizer_data(MADE[package]())
    assert data.package == package
    tokenizer = load_tokenizer(data)
    text = next(line for line in TEXT.splitlines() if line.isascii() and len(line) > 80 and "  " not in line)
    prompt, tokens = tokenizer.encode("Say:"), tokenizer.encode(f"Say: {text}")
    assert tokens[: len(prompt)] == prompt
    told = TextOfTokens(tokenizer, prompt)
    pieces = [told.add(token) for token in tokens[len(prompt) :]]
    assert "".join(pieces) + told.finish() == f" {text}"
    assert sum(map(bool, pieces)) > len(pieces) // 2, "text comes as soon as it is known"


class Numbers:
    """Each byte, or each letter, is a token."""

    def __init__(self, letters: bool = False) -> None:
        self.letters = letters

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text)) if self.letters else list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens)) if self.letters else bytes(tokens).decode("utf-8", "replace")

    def find(self, text: str) -> int | None:
        return None


def test_incomplete_characters_wait() -> None:
    """A snowman has three bytes."""
    told = TextOfTokens(Numbers(), Numbers().encode("snow"))
    snowman = Numbers().encode("\u2603!")
    assert [told.add(token) for token in snowman] == ["", "", "\u2603", "!"]
    assert [told.add(token) for token in snowman[:2]] == ["", ""]
    assert told.finish() == "\ufffd"
    assert told.finish() == ""


def test_letters_for_bytes() -> None:
    """They are those of the package ``tokenizers``."""
    tokenizer = Letters(Numbers(letters=True))
    everything = "".join(map(chr, range(0x800)))
    letters = {chr(token) for token in tokenizer.encode(everything)}
    assert letters <= {*pre_tokenizers.ByteLevel.alphabet()} and len(letters) > 190
    assert tokenizer.decode(tokenizer.encode(everything)) == everything
    assert tokenizer.encode(" \n") == [ord("\u0120"), ord("\u010a")]


@pytest.mark.parametrize("package", MADE)
def test_tokens_by_their_names(package: str) -> None:
    tokenizer = load_tokenizer(tokenizer_data(MADE[package]()))
    for name in (START, STOP):
        (token,) = tokens_of(tokenizer, name)
        assert tokenizer.find(name) == token
    assert tokens_of(tokenizer, (7, 9)) == (7, 9)
    several = tokens_of(tokenizer, "two words")
    assert len(several) > 1 and tokenizer.decode(several).strip() == "two words"


@pytest.mark.parametrize("package", MADE)
def test_a_damaged_tokenizer(package: str) -> None:
    with pytest.raises(tflgpu.ModelError, match=f"{package} cannot read the tokenizer"):
        load_tokenizer(TokenizerData(package, b"{damaged"))  # type: ignore[arg-type]


def test_a_tokenizer_that_panics() -> None:
    """Its package raises PanicException, which is no Exception, and for unknown words Exception itself."""
    parts = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}}
    damaged = parts | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}
    with pytest.raises(tflgpu.ModelError, match="tokenizers cannot read the tokenizer: the library panicked"):
        load_tokenizer(tokenizer_data(json.dumps(damaged).encode()))
    tokenizer = load_tokenizer(tokenizer_data(json.dumps(parts).encode()))
    with pytest.raises(tflgpu.ModelError, match="tokenizers cannot make tokens of the text"):
        tokenizer.encode("b")


@pytest.mark.parametrize("package", MADE)
def test_a_missing_package(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=f'needs the package {package}; install it with `pip install "tokenizers'):
        load_tokenizer(TokenizerData(package, b""))  # type: ignore[arg-type]
