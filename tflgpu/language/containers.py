"""Opens the files in which language models are shipped: .litertlm, .task, and a plain .tflite."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Literal

from tflgpu.errors import ModelError
from tflgpu.language.language_metadata import LanguageMetadata, section_metadata, task_metadata
from tflgpu.language.section_table import MAGIC, Section, read_sections

ZIP_MAGIC = b"PK\x03\x04"

# The names of a .task file's parts, and of the model among the sections of a .litertlm file.
MODEL, TOKENIZER, METADATA = "TF_LITE_PREFILL_DECODE", "TOKENIZER_MODEL", "METADATA"

_LARGEST_TOKENIZER = 1 << 30  # bytes


@dataclass(frozen=True)
class TokenizerData:
    """A tokenizer as a file has it: a model of ``sentencepiece``, or the JSON of ``tokenizers``."""

    package: Literal["sentencepiece", "tokenizers"]
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class LanguageFile:
    """The parts of a file with a language model.

    Attributes:
        path: Of the file.
        models: The bytes of each .tflite model, read when they are asked for, by name: ``TF_LITE_PREFILL_DECODE`` is
            the language model, others are such as encoders of images.
        tokenizer: The tokenizer, if the file has one.
        metadata: What the file says about its model.
    """

    path: Path
    models: Mapping[str, Callable[[], bytes]]
    tokenizer: TokenizerData | None
    metadata: LanguageMetadata

    def model(self) -> bytes:
        """The language model.

        Returns:
            The bytes of a .tflite model.

        Raises:
            ModelError: The file has none.
            OSError: The file cannot be read.
        """
        if MODEL not in self.models:
            raise ModelError(f"the file has no {MODEL}; it has: {', '.join(self.models) or 'no model'}")
        return self.models[MODEL]()


def open_language_file(path: str | PathLike[str]) -> LanguageFile:
    """Open a .litertlm, .task or .tflite file; its first bytes tell which of them it is.

    Args:
        path: Of the file.

    Returns:
        Its models, tokenizer and metadata. A .tflite file is one model.

    Raises:
        ModelError: The file is damaged, or of a version that cannot be read.
        OSError: The file cannot be read.
    """
    path = Path(path).absolute()
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
            file.seek(0)
            if magic == MAGIC:
                return _open_sections(path, file)
            if magic.startswith(ZIP_MAGIC):
                return _open_zip(path, file)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    return LanguageFile(path, {MODEL: path.read_bytes}, None, LanguageMetadata())


def tokenizer_data(data: bytes) -> TokenizerData:
    """The bytes of a tokenizer's file with the package that reads it: JSON is of ``tokenizers``."""
    return TokenizerData("tokenizers" if data.lstrip()[:1] == b"{" else "sentencepiece", data)


def _open_sections(path: Path, file: BinaryIO) -> LanguageFile:
    sections = read_sections(file, path.stat().st_size)
    models: dict[str, Callable[[], bytes]] = {}
    tokenizer, metadata = None, LanguageMetadata()
    for section in sections:
        name = section.items.get("model_type", MODEL).upper()
        match section.type:
            case "model":
                models.setdefault(name, _SectionBytes(path, section))
            case "sentencepiece" | "tokenizers" if tokenizer is None:
                data = _SectionBytes(path, section)()
                if section.type == "sentencepiece":
                    tokenizer = TokenizerData("sentencepiece", data)
                else:
                    tokenizer = TokenizerData("tokenizers", _uncompressed(data))
            case "metadata":
                metadata = section_metadata(_SectionBytes(path, section)())
            case "weights" if name == MODEL:
                raise ModelError("its weights are in a section of their own, which cannot be read")
    return LanguageFile(path, models, tokenizer, metadata)


@dataclass(frozen=True)
class _SectionBytes:
    path: Path
    section: Section

    def __call__(self) -> bytes:
        size = self.section.end - self.section.begin
        with self.path.open("rb") as file:
            file.seek(self.section.begin)
            data = file.read(size)
        if len(data) < size:
            raise ModelError(f"{self.path}: the file has changed since it was opened")
        return data


def _uncompressed(data: bytes) -> bytes:
    """The text of a tokenizer: eight bytes with its length come before the compressed bytes."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > _LARGEST_TOKENIZER:
        raise ModelError(f"the tokenizer is damaged: it claims {size} bytes")
    try:
        text = zlib.decompressobj().decompress(data[8:], size + 1)
    except zlib.error as error:
        raise ModelError(f"the tokenizer is damaged: {error}") from error
    if len(text) != size:
        raise ModelError(f"the tokenizer is damaged: it claims {size} bytes and has {len(text)}")
    return text


def _open_zip(path: Path, file: BinaryIO) -> LanguageFile:
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            for name, entry in entries.items():
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise ModelError(
                        f"{name} is compressed; LiteRT's tools store the parts of a .task file as they are"
                    )
            parts = {name: archive.read(name) for name in (TOKENIZER, METADATA) if name in entries}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"the .task file is damaged: {error}") from error
    models = {name: _EntryBytes(path, name) for name in entries if name not in (TOKENIZER, METADATA)}
    tokenizer = tokenizer_data(parts[TOKENIZER]) if TOKENIZER in parts else None
    metadata = task_metadata(parts[METADATA]) if METADATA in parts else LanguageMetadata()
    return LanguageFile(path, models, tokenizer, metadata)


@dataclass(frozen=True)
class _EntryBytes:
    path: Path
    name: str

    def __call__(self) -> bytes:
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(self.name)
        except (zipfile.BadZipFile, KeyError, EOFError) as error:
            raise ModelError(f"{self.path}: the .task file is damaged: {error}") from error
