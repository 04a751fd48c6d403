"""Answers that have to be JSON of a schema, or of a regular expression or a grammar, by the package ``llguidance``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.errors import DeviceError, install_command
from tflgpu.language.containers import TokenizerData

# Texts before another one, of which one joins no token with it.
_BEFORE = ("=", "x", "\n", ".")


class Grammars:
    """Makes constraints for the tokens of one tokenizer."""

    def __init__(self, tokenizer: TokenizerData | None, stops: Sequence[tuple[int, ...]]) -> None:
        """Take a tokenizer's file, and the ends of an answer.

        Raises ValueError if the package is not installed, no single token ends an answer, or the tokenizer is no file.
        """
        try:
            self._library: Any = import_module("llguidance")
        except ModuleNotFoundError as error:
            raise ValueError(
                f"a constraint needs the package llguidance; install it with {install_command('grammar')}"
            ) from error
        if tokenizer is None:
            raise ValueError("a constraint needs a tokenizer of sentencepiece or tokenizers, from a file")
        ends = [stop[0] for stop in stops if len(stop) == 1]
        if not ends:
            raise ValueError("a constraint needs a token that ends an answer; name one by the engine's stops")
        if tokenizer.package == "tokenizers":
            given: Any = tokenizer.data.decode()
        else:
            given = self._library.TokenizerWrapper(_Pieces(tokenizer.data, ends[0]))
        self._tokenizer = self._library.LLTokenizer(given, eos_token=ends)

    def json(self, schema: str | Mapping[str, Any] | None = None) -> TokenConstraint:
        """Return the constraint of JSON.

        Args:
            schema: That it has to fulfil, as JSON or as a dictionary; None for any object.

        Raises:
            ValueError: The schema is none, or it has what llguidance does not know.
        """
        if schema is None:
            schema = {"type": "object"}
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self._constraint("schema", self._library.LLMatcher.grammar_from_json_schema, text)

    def regex(self, pattern: str) -> TokenConstraint:
        """Return the constraint of a regular expression. The errors are those of :meth:`json`.

        Args:
            pattern: In the syntax of Rust's crate regex; the whole answer matches it.
        """
        return self._constraint("regular expression", self._library.LLMatcher.grammar_from_regex, pattern)

    def lark(self, grammar: str) -> TokenConstraint:
        """Return the constraint of a grammar. The errors are those of :meth:`json`.

        Args:
            grammar: In the syntax of Lark; the answer is its rule ``start``.
        """
        return self._constraint("grammar", self._library.LLMatcher.grammar_from_lark, grammar)

    def _constraint(self, kind: str, make: Any, text: str) -> TokenConstraint:
        try:
            matcher = self._library.LLMatcher(self._tokenizer, make(text), log_level=0)
        except ValueError as error:
            raise ValueError(f"the {kind} is not valid: {error}") from error
        if fault := matcher.get_error():
            raise ValueError(f"the {kind} is not valid: {fault}")
        return TokenConstraint(matcher)


class TokenConstraint:
    """The constraint of one answer: which tokens may come next. Made by :class:`Grammars`."""

    def __init__(self, matcher: Any) -> None:
        """Take a matcher of llguidance."""
        self._matcher = matcher

    @property
    def is_over(self) -> bool:
        """Whether nothing may follow."""
        return bool(self._matcher.is_stopped())

    def allowed(self) -> NDArray[np.bool_]:
        """Return whether each token may be the next one."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, bitorder="little").astype(bool)

    def take(self, token: int) -> None:
        """Note the token that was chosen.

        Args:
            token: One that the constraint allowed.

        Raises:
            DeviceError: The constraint does not allow it.
        """
        if not self._matcher.consume_token(token):
            raise DeviceError(f"the constraint does not take token {token}: {self._matcher.get_error()}")


class _Pieces:
    """A model of sentencepiece as llguidance reads it: the bytes of each token."""

    def __init__(self, data: bytes, end: int) -> None:
        module: Any = import_module("sentencepiece")
        self._processor = module.SentencePieceProcessor(model_proto=data)
        self.eos_token_id, self.bos_token_id = end, None
        count = self._processor.get_piece_size()
        self.tokens = [self._bytes(token) for token in range(count)]
        self.special_token_ids = [token for token in range(count) if self._is_special(token)]

    def _is_special(self, token: int) -> bool:
        return bool(self._processor.is_control(token) or self._processor.is_unknown(token))

    def _bytes(self, token: int) -> bytes:
        piece = str(self._processor.id_to_piece(token))
        if self._processor.is_byte(token):
            return bytes([int(piece[1:-1], 16)])
        return piece.replace("\u2581", " ").encode()

    def __call__(self, text: str) -> list[int]:
        """Return the tokens of a text within another one: without the space that one begins with."""
        for before in _BEFORE:
            known, found = (list(self._processor.encode(given)) for given in (before, before + text))
            if found[: len(known)] == known:
                return found[len(known) :]
        return list(self._processor.encode(text))
