"""Text to tokens and back, by the packages ``sentencepiece`` and ``tokenizers``; checks of callers' texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from tflgpu.errors import ModelError, catching_panics, install_command
from tflgpu.language.containers import LanguageFile, TokenizerData, tokenizer_data
from tflgpu.language.language_metadata import NamedToken


def check_texts(what: str, texts: object) -> None:
    """Accept a list of texts that are not empty.

    Args:
        what: The name of the list, for messages.
        texts: A caller's value.

    Raises:
        TypeError: It is no sequence of texts.
        ValueError: A text is empty.
    """
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not all(isinstance(each, str) for each in texts):
        raise TypeError(f"{what} is {texts!r}; a list of texts was expected")
    if "" in texts:
        raise ValueError(f"{what} has an empty text, which no answer could avoid; the text of a token was expected")


def utf8_text(what: str, text: object) -> str:
    """Return a caller's text.

    Args:
        what: The name of the text, for messages.
        text: A caller's value.

    Raises:
        TypeError: It is no text.
        ValueError: UTF-8 cannot have it, because it has a lone surrogate.
    """
    if not isinstance(text, str):
        raise TypeError(_no_text(what, text))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} is no text in UTF-8, at character {error.start}") from error
    return text


def _no_text(what: str, found: object) -> str:
    """Why something is no text."""
    kind = type(found).__name__
    if isinstance(found, bytes | bytearray):
        advice = "decode it, as by prompt.decode()"
    elif isinstance(found, list | tuple | dict):
        advice = "give the content of the last message, as messages[-1]['content']"
    else:
        advice = "give it as str"
    return f"{what} is of type {kind}, and a text was expected: {advice}"


# The character that a decoder puts in place of bytes that are no text, such as the first ones of a character.
INCOMPLETE = "\ufffd"

# A character has at most four bytes, and a token at least one.
_TOKENS_OF_A_CHARACTER = 4


class Tokenizer(Protocol):
    """Protocol of the tokenizers that :class:`tflgpu.language.Generator` takes."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without tokens for its beginning and end.

        Args:
            text: It need not end with a whole word.
        """

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens.

        Args:
            tokens: Of the vocabulary.
        """

    def find(self, text: str) -> int | None:
        """Return the one token that has a text or a name, None if there is none.

        Args:
            text: The text of a piece, or the name of a special token.
        """


def load_tokenizer(file: TokenizerData, bytes_as_letters: bool = False) -> Tokenizer:
    """Return the tokenizer of a file.

    Args:
        file: Its bytes, and the package that reads them.
        bytes_as_letters: Whether each letter of the tokenizer stands for a byte.

    Raises:
        ValueError: The package that reads it is not installed; the message says how to install it.
        ModelError: The tokenizer is damaged.
    """
    try:
        module: Any = import_module(file.package)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the tokenizer needs the package {file.package}; install it with {install_command('language')}"
        ) from error
    tokenizer = _Checked(module, file)
    return Letters(tokenizer) if bytes_as_letters else tokenizer


def given_tokenizer(file: LanguageFile, given: str | PathLike[str] | Tokenizer | None) -> Tokenizer:
    """Return a caller's tokenizer, or else that of the model's file.

    Args:
        file: The model's file.
        given: A path of a tokenizer's file, or an object; None for the model's.

    Raises:
        ValueError: There is no tokenizer, or the package that reads it is not installed.
        ModelError: The tokenizer is damaged.
        OSError: The file cannot be read.
    """
    if isinstance(given, str | PathLike):
        return load_tokenizer(tokenizer_data(Path(given).read_bytes()))
    if given is not None:
        return given
    if file.tokenizer is None:
        raise ValueError(f"{file.path} has no tokenizer; give one: a file of sentencepiece or tokenizers")
    return load_tokenizer(file.tokenizer, file.metadata.bytes_as_letters)


def tokens_of(tokenizer: Tokenizer, named: NamedToken) -> tuple[int, ...]:
    """Return the tokens that a file names.

    Args:
        tokenizer: Of the file's model.
        named: A text, which is one token or several, or ids.
    """
    if not isinstance(named, str):
        return named
    found = tokenizer.find(named)
    return tuple(tokenizer.encode(named)) if found is None else (found,)


class _Checked:
    """A tokenizer of a package, each fault of which is a ModelError: the packages raise Exception itself, and panic.

    file: its file.
    """

    def __init__(self, module: Any, file: TokenizerData) -> None:
        kind = _SentencePieces if file.package == "sentencepiece" else _TokenizersFile
        self._package, self.file = file.package, file
        with self._faults("read the tokenizer"):
            self._tokenizer: _SentencePieces | _TokenizersFile = kind(module, file.data)

    def encode(self, text: str) -> list[int]:
        with self._faults("make tokens of the text"):
            return self._tokenizer.encode(text)

    def encode_whole(self, text: str) -> list[int]:
        """Return the tokens of a text, with those that the file puts around each text."""
        with self._faults("make tokens of the text"):
            return self._tokenizer.encode_whole(text)

    def decode(self, tokens: Sequence[int]) -> str:
        with self._faults("make text of tokens"):
            return self._tokenizer.decode(tokens)

    def find(self, text: str) -> int | None:
        with self._faults("look up a token"):
            return self._tokenizer.find(text)

    @contextmanager
    def _faults(self, doing: str) -> Iterator[None]:
        try:
            with catching_panics():
                yield
        except Exception as error:
            raise ModelError(f"{self._package} cannot {doing}: {error}") from error


class _SentencePieces:
    def __init__(self, module: Any, data: bytes) -> None:
        self._processor = module.SentencePieceProcessor(model_proto=data)

    def encode(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    encode_whole = encode

    def decode(self, tokens: Sequence[int]) -> str:
        size = self._processor.get_piece_size()
        return str(self._processor.decode([token for token in tokens if token < size]))

    def find(self, text: str) -> int | None:
        token = int(self._processor.piece_to_id(text))
        return token if self._processor.id_to_piece(token) == text else None


class _TokenizersFile:
    def __init__(self, module: Any, data: bytes) -> None:
        self._tokenizer = module.Tokenizer.from_buffer(data)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_whole(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=True).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))

    def find(self, text: str) -> int | None:
        token = self._tokenizer.token_to_id(text)
        return None if token is None else int(token)


class Letters:
    """A tokenizer of the letters that GPT-2 has for bytes: the visible ones of Latin-1, the others from 256 on."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
        others = (byte for byte in range(256) if byte not in visible)
        self._letters = {byte: chr(byte) for byte in visible} | {b: chr(256 + i) for i, b in enumerate(others)}
        self._bytes = {letter: byte for byte, letter in self._letters.items()}

    def encode(self, text: str) -> list[int]:
        """Return the tokens of the letters of a text's bytes.

        Args:
            text: Its bytes are those of UTF-8.
        """
        return self._tokenizer.encode("".join(self._letters[byte] for byte in text.encode()))

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of the bytes of the tokens' letters. Bytes that are no UTF-8 are replaced.

        Args:
            tokens: Of the vocabulary.
        """
        letters = self._tokenizer.decode(tokens)
        return bytes(self._bytes[letter] for letter in letters if letter in self._bytes).decode("utf-8", "replace")

    def find(self, text: str) -> int | None:
        """Return the one token of a text's letters, None if there is none.

        Args:
            text: Letters that stand for bytes.
        """
        return self._tokenizer.find(text)


class TextOfTokens:
    """The text of tokens that come one after another, as soon as its characters are complete.

    before: the tokens before the first one, without which a tokenizer would leave out the space before a word.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(before[-_TOKENS_OF_A_CHARACTER:])
        self._told = len(self._tokens)  # tokens whose text was given

    def add(self, token: int) -> str:
        """Return the text that a token adds; it may be empty until a whole character is known.

        Args:
            token: The next one.
        """
        self._tokens.append(token)
        return self._next(is_last=False)

    def finish(self) -> str:
        """Return what is left, which is no complete character."""
        return self._next(is_last=True) if self._told < len(self._tokens) else ""

    def _next(self, *, is_last: bool) -> str:
        known, text = (self._tokenizer.decode(tokens) for tokens in (self._tokens[: self._told], self._tokens))
        pending = len(self._tokens) - self._told
        if text.endswith(INCOMPLETE) and pending < _TOKENS_OF_A_CHARACTER and not is_last:
            return ""
        added = text[len(known) :]
        self._tokens = self._tokens[self._told :]
        self._told = len(self._tokens)
        return added
