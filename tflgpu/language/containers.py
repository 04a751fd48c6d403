"""Opens the files in which language models are shipped: .litertlm, .task, and a plain .tflite."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Literal

from tflgpu.errors import ModelError
from tflgpu.language.language_metadata import LanguageMetadata
from tflgpu.language.metadata_messages import (
    check_executor_metadata,
    embedding_metadata,
    section_metadata,
    task_metadata,
)
from tflgpu.model.constants import without_external_buffers
from tflgpu.model.flat_table import FlatTable
from tflgpu.model.model_source import HEAD, check_is_file, described

MAGIC = b"LITERTLM"

MAJOR_VERSION = 1  # a file of another one has another layout

_VERSIONS, _HEADER_END, _HEADER_BEGIN = 8, 24, 32  # bytes from the file's beginning

_LARGEST_HEADER = 1 << 26  # bytes

# Types of sections by their numbers: AnySectionDataType of LiteRT-LM's schema (litertlm_header_schema.fbs). An earlier
# revision of it has the executor's metadata at 8.
TYPES = (
    "none",
    "data",
    "deprecated",
    "model",
    "sentencepiece",
    "metadata",
    "tokenizers",
    "weights",
    "embedding metadata",
    "executor metadata",
    "speech metadata",
    "recognition metadata",
)

_TEXT = 9  # the number of texts in the union of values


@dataclass(frozen=True)
class Section:
    """One part of the file. items: texts that describe it, such as ``model_type``."""

    type: str
    begin: int
    end: int
    items: Mapping[str, str]


def read_sections(file: BinaryIO, size: int) -> tuple[Section, ...]:
    """Return the sections of a .litertlm file.

    Args:
        file: Is read from its begin on.
        size: The file's length in bytes.

    Raises:
        ModelError: It has another format or version, or its table points outside of the file.
    """
    head = file.read(_HEADER_BEGIN)
    if len(head) < _HEADER_BEGIN or head[: len(MAGIC)] != MAGIC:
        raise ModelError(f"not a .litertlm file: it does not begin with {MAGIC.decode()}")
    major, minor, patch = struct.unpack_from("<III", head, _VERSIONS)
    if major != MAJOR_VERSION:
        raise ModelError(f"the .litertlm file has version {major}.{minor}.{patch}; {MAJOR_VERSION}.x can be read")
    (end,) = struct.unpack_from("<Q", head, _HEADER_END)
    if not _HEADER_BEGIN + 8 <= end <= min(size, _HEADER_BEGIN + _LARGEST_HEADER):
        raise ModelError(f"the .litertlm file is damaged: its table ends at {end}, and it has {size} bytes")
    try:
        metadata = FlatTable.root(file.read(end - _HEADER_BEGIN)).table(1)
        sections = [_section(each) for each in metadata.tables(0)] if metadata else []
    except ValueError as error:
        raise ModelError(f"the .litertlm file is damaged: {error}") from error
    for section in sections:
        if not end <= section.begin <= section.end <= size:
            raise ModelError(
                f"the .litertlm file is damaged or not complete: a section lies at {section.begin} to {section.end}, "
                f"and it has {size} bytes"
            )
    return tuple(sections)


def _section(table: FlatTable) -> Section:
    number = table.number(3, "B")
    items = {}
    for item in table.tables(0):
        value = item.table(2)
        if value is not None and item.number(1, "B") == _TEXT:
            items[item.text(0)] = value.text(0)
    kind = TYPES[number] if number < len(TYPES) else f"type {number}"
    return Section(kind, table.number(1, "Q"), table.number(2, "Q"), items)


ZIP_MAGIC = b"PK\x03\x04"

# The names of a .task file's parts, and of the model among the sections of a .litertlm file.
MODEL, TOKENIZER, METADATA = "TF_LITE_PREFILL_DECODE", "TOKENIZER_MODEL", "METADATA"

ENCODER = "TF_LITE_TEXT_ENCODER"  # which makes vectors of texts

# The group of external buffers whose bytes are the section of weights of the same model_type.
WEIGHTS = "tflite_weights"

_LARGEST_TOKENIZER = 1 << 30  # bytes

_PIECE = 1 << 24  # bytes that are read at a time


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
            the language model, others are such as encoders of images. Weights that the file has in a section of their
            own are among the bytes of their model.
        tokenizer: The tokenizer, if the file has one.
        metadata: What the file says about its model.
    """

    path: Path
    models: Mapping[str, Callable[[], bytes]]
    tokenizer: TokenizerData | None
    metadata: LanguageMetadata

    def model(self) -> bytes:
        """Return the language model.

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
        ModelError: The file is damaged, of a version that cannot be read, or says of its model what is not supported.
        ValueError: The package that reads its metadata is not installed.
        OSError: The file cannot be read.
    """
    path = Path(path).absolute()
    try:
        check_is_file(path)
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
            file.seek(0)
            if magic == MAGIC:
                return _open_sections(path, file)
            if magic.startswith(ZIP_MAGIC):
                return _open_zip(path, file)
            if found := described(file.read(HEAD)):
                raise ModelError(f"not a language model's file: {found}")
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    return LanguageFile(path, {MODEL: path.read_bytes}, None, LanguageMetadata())


def tokenizer_data(data: bytes) -> TokenizerData:
    """Return the bytes of a tokenizer's file with the package that reads it.

    Args:
        data: JSON of ``tokenizers``, or else a model of ``sentencepiece``.
    """
    return TokenizerData("tokenizers" if data.lstrip()[:1] == b"{" else "sentencepiece", data)


def _open_sections(path: Path, file: BinaryIO) -> LanguageFile:
    sections = read_sections(file, path.stat().st_size)
    weights = {_model_type(s): _SectionBytes(path, s) for s in reversed(sections) if s.type == "weights"}
    models: dict[str, Callable[[], bytes]] = {}
    tokenizer, metadata = None, LanguageMetadata()
    kinds = {section.type for section in sections}
    for section in sections:
        match section.type:
            case "model":
                name = _model_type(section)
                models.setdefault(name, _ModelBytes(_SectionBytes(path, section), weights.get(name)))
            case "sentencepiece" | "tokenizers" if tokenizer is None:
                data = _SectionBytes(path, section)()
                if section.type == "sentencepiece":
                    tokenizer = TokenizerData("sentencepiece", data)
                else:
                    tokenizer = TokenizerData("tokenizers", _uncompressed(data))
            case "metadata":
                metadata = section_metadata(_SectionBytes(path, section)())
            case "embedding metadata" if "metadata" not in kinds:
                metadata = embedding_metadata(_SectionBytes(path, section)())
            case "embedding metadata" | "executor metadata":  # an earlier revision has the executor's at that number
                check_executor_metadata(_SectionBytes(path, section)())
    return LanguageFile(path, models, tokenizer, metadata)


def _model_type(section: Section) -> str:
    return section.items.get("model_type", MODEL).upper()


@dataclass(frozen=True)
class _SectionBytes:
    path: Path
    section: Section

    @property
    def size(self) -> int:
        return self.section.end - self.section.begin

    def __call__(self) -> bytes:
        return b"".join(self.pieces(self.size))

    def pieces(self, size: int = _PIECE) -> Iterator[bytes]:
        """Yield the bytes, at most ``size`` of them at a time."""
        left = self.size
        with self.path.open("rb") as file:
            file.seek(self.section.begin)
            while left:
                data = file.read(min(left, size))
                if not data:
                    raise ModelError(f"{self.path}: the file has changed since it was opened")
                left -= len(data)
                yield data


@dataclass(frozen=True)
class _ModelBytes:
    """A model with its weights, which may be in a section of their own. They are in memory once, as part of it."""

    model: _SectionBytes
    weights: _SectionBytes | None

    def __call__(self) -> bytes:
        model = self.model()
        head = without_external_buffers(model, WEIGHTS, self.weights.size if self.weights else None)
        if head is None or self.weights is None:
            return model
        whole = io.BytesIO()
        whole.write(head)
        whole.writelines(self.weights.pieces())
        return whole.getvalue()


def _uncompressed(data: bytes) -> bytes:
    """Return the text of a tokenizer: eight bytes with its length come before the compressed bytes."""
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
    if MODEL not in entries and not any(name.startswith("TF_LITE") for name in entries):
        raise ModelError(f"not a language model's file: {described(path.read_bytes())}")
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
