"""The forms in which callers give a model, a path or bytes, and files that are given for a model and are none."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from tflgpu.errors import ModelError

HEAD = 512  # bytes that tell most files apart

TO_CONVERT = "only .tflite files run: convert it"
KERAS = f"{TO_CONVERT} with TensorFlow's tf.lite.TFLiteConverter.from_keras_model"
TORCH = f"{TO_CONVERT} with the package litert-torch"
ONNX = f"{TO_CONVERT} with the package onnx2tf"
SAVED_MODEL = f"{TO_CONVERT}, its whole folder, with TensorFlow's tf.lite.TFLiteConverter.from_saved_model"
FROZEN = f"{TO_CONVERT} with TensorFlow's tf.compat.v1.lite.TFLiteConverter.from_frozen_graph"
TO_DOWNLOAD = "the download went wrong: get the file itself"
LANGUAGE = "`tflgpu generate` and tflgpu.language.Generator answer prompts with it"
UNPACK = "unpack it, and give the .tflite file in it"
WEIGHTS = "it has weights and no operators; get the model as a .tflite file"


class Kind(NamedTuple):
    """A kind of file. has: tells whether a file is of this kind by its first bytes: HEAD of them, or the whole file."""

    name: str
    advice: str
    has: Callable[[bytes], bool]


def _starts(*magic: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(magic)


def _text(*starts: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(starts)


def _is_onnx(head: bytes) -> bool:
    """Return the fields ir_version, and then one of the next ones of ModelProto."""
    return head[:1] == b"\x08" and head[1:2] < b"\x20" and head[2:3] in {bytes([tag]) for tag in b'\x12\x1a"(2:B'}


def _is_safetensors(head: bytes) -> bool:
    return head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") < 1 << 32


def _is_graph(head: bytes) -> bool:
    """Return a node with a name and an operator begins it."""
    return head[:1] == b"\n" and (b"Placeholder" in head or b"\x12\x05Const" in head)


def _is_text(head: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        return all(letter.isprintable() or letter.isspace() for letter in head[: HEAD - 4].decode())
    return False


# The first that fits is it.
KINDS = (
    Kind("a pointer of Git LFS to a file", "fetch that with `git lfs pull`", _starts(b"version https://git-lfs")),
    Kind("a web page (HTML)", f"{TO_DOWNLOAD}, not its page", _text(b"<!doctype html", b"<html")),
    Kind("XML", "only .tflite files run", _text(b"<?xml")),
    Kind("data compressed by gzip", UNPACK, _starts(b"\x1f\x8b")),
    Kind("data compressed by bzip2", UNPACK, _starts(b"BZh")),
    Kind("data compressed by xz", UNPACK, _starts(b"\xfd7zXZ\x00")),
    Kind("data compressed by Zstandard", UNPACK, _starts(b"\x28\xb5\x2f\xfd")),
    Kind("a 7z archive", UNPACK, _starts(b"7z\xbc\xaf\x27\x1c")),
    Kind("a RAR archive", UNPACK, _starts(b"Rar!")),
    Kind("a tar archive", UNPACK, lambda head: head[257:262] == b"ustar"),
    Kind("a language model in GGUF", "get it as a .litertlm file, or run it with llama.cpp", _starts(b"GGUF")),
    Kind("a language model's file (.litertlm)", LANGUAGE, _starts(b"LITERTLM")),
    Kind("an HDF5 file, as Keras writes models to", KERAS, _starts(b"\x89HDF\r\n\x1a\n")),
    Kind("a file of safetensors", WEIGHTS, _is_safetensors),
    Kind("pickled objects, as PyTorch writes models to", TORCH, _starts(*(bytes([0x80, n]) for n in range(2, 6)))),
    Kind("a saved_model.pb of TensorFlow", SAVED_MODEL, _starts(b"\x08\x01\x12")),
    Kind("an ONNX model", ONNX, _is_onnx),
    Kind("a frozen graph of TensorFlow", FROZEN, _is_graph),
    Kind("a model of ONNX Runtime", ONNX, lambda head: head[4:8] == b"ORTM"),
    Kind("a model of ExecuTorch", TORCH, lambda head: head[4:6] == b"ET" and head[6:8].isdigit()),
    Kind("an array of numpy", "it may be an input, not the model", _starts(b"\x93NUMPY")),
    Kind("a PNG image", "it may be an input, not the model", _starts(b"\x89PNG")),
    Kind("a JPEG image", "it may be an input, not the model", _starts(b"\xff\xd8\xff")),
    Kind("a GIF image", "it may be an input, not the model", _starts(b"GIF8")),
    Kind("a PDF document", "only .tflite files run", _starts(b"%PDF")),
    Kind("a program or library", "only .tflite files run", _starts(b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe")),
    Kind("JSON", "only .tflite files run", _text(b"{", b"[")),
    Kind("nothing but zeros", TO_DOWNLOAD, lambda head: not any(head)),
    Kind("a text file", "only .tflite files run", _is_text),
)

# Zip archives by a part of the name of an entry.
ARCHIVES = (
    ("data.pkl", "a model of PyTorch", TORCH),
    ("model.weights.h5", "a model of Keras", KERAS),
    ("saved_model.pb", "a packed SavedModel of TensorFlow", SAVED_MODEL),
    ("TF_LITE_PREFILL_DECODE", "a language model's file (.task)", LANGUAGE),
    (".npy", "a file of numpy's arrays (.npz)", "they may be inputs, not the model"),
    (".tflite", "a zip archive", "unpack it, and give the {} in it"),
)


def described(data: bytes | bytearray | memoryview) -> str | None:
    """Return what a file is that is no model, and what to do, as a sentence; None if that is not known.

    Args:
        data: The file's bytes, or its first ones.
    """
    head = bytes(data[:HEAD])
    if not head or head[4:8] == b"TFL3":
        return None
    if head.startswith(b"PK\x03\x04"):
        return _described_zip(bytes(data))
    kind = next((kind for kind in KINDS if kind.has(head)), None)
    return None if kind is None else f"it is {kind.name}; {kind.advice}"


def _described_zip(data: bytes) -> str:
    names: list[str] = []
    damage = zipfile.BadZipFile, NotImplementedError, ValueError, OSError
    with suppress(*damage), zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
    for part, name, advice in ARCHIVES:
        found = next((entry for entry in names if part in entry), None)
        if found is not None:
            return f"it is {name}; {advice.format(found)}"
    return f"it is a zip archive; {UNPACK}"


def described_folder(folder: Path) -> str | None:
    """Return what a folder is that is given for a model, and what to do, as a sentence; None if that is not known.

    Args:
        folder: It must exist.
    """
    names = sorted(entry.name for entry in folder.iterdir())
    if "saved_model.pb" in names or "keras_metadata.pb" in names:
        return f"it is a SavedModel of TensorFlow; {SAVED_MODEL}"
    models = [name for name in names if name.endswith((".tflite", ".litertlm", ".task"))]
    if models:
        return f"it is a folder; give one of the models in it, such as {models[0]}"
    if folder.suffix == ".mlpackage":
        return "it is a model of Core ML; get it as a .tflite file"
    if "config.json" in names:
        return f"it is a model's folder as Hugging Face has it; {TORCH}"
    return None


Buffer = bytes | bytearray | memoryview

ModelSource = str | PathLike[str] | Buffer


class ModelContent:
    """A model's bytes. A file is read when they are first needed, and held until :meth:`release`.

    What is hashed is what is compiled: a file that is read again must not have changed.
    The bytes are a copy in memory, so that nothing that happens to the file or the caller's buffer can reach them. A
    mapped file would change under its reader, and kill the process if it was truncated.

    path: of the file, absolute because the working directory can change; None for a model given as bytes.
    status: of the file that was read, taken before; None until then.
    """

    def __init__(self, model: ModelSource) -> None:
        """Raise TypeError for neither a path nor bytes, ValueError for an empty path."""
        self.path: Path | None = None
        self.status: os.stat_result | None = None
        self._bytes: bytes | None = None
        if not isinstance(model, str | PathLike):
            self._bytes = _bytes_of(model)
        elif not os.fspath(model):
            raise ValueError("model is an empty path")
        else:
            self.path = Path(model).absolute()

    @property
    def name(self) -> str | None:
        """Name of the file, without its folder."""
        return self.path.name if self.path else None

    @property
    def is_read(self) -> bool:
        """Whether the bytes are in memory."""
        return self._bytes is not None

    @property
    def bytes(self) -> bytes:
        """Raises OSError if the file cannot be read, ModelError if it is none, or another one than at first."""
        if self._bytes is None:
            assert self.path is not None
            check_is_file(self.path)
            with open(self.path, "rb", buffering=0) as file:
                status = os.fstat(file.fileno())  # of the open file: the path may already name another one
                if self.status is not None and _identity(status) != _identity(self.status):
                    raise ModelError("the file has changed since it was read first; compile it again")
                self.status = status
                self._bytes = file.read()
        return self._bytes

    @contextmanager
    def naming_file(self) -> Iterator[None]:
        """While the bytes are read: a ModelError begins with the file's path."""
        try:
            yield
        except ModelError as error:
            if self.path is None:
                raise
            raise ModelError(f"{self.path}: {error}") from error

    def release(self) -> None:
        """Drop the bytes of a file, of which the device or an artifact has what it needs."""
        if self.path is not None:
            self._bytes = None


def check_is_file(path: Path) -> None:
    """Raise ModelError for a folder that is a model of another kind, and for a device, which may have no end."""
    if path.is_dir() and (found := described_folder(path)):
        raise ModelError(f"not a TensorFlow Lite model: {found}")
    if path.is_char_device() or path.is_block_device():
        raise ModelError("not a TensorFlow Lite model: it is a device of the system, and no file")


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Return what differs between two files, or two states of one."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _bytes_of(model: Buffer) -> bytes:
    """Return a copy of a buffer; bytes themselves need none."""
    try:
        return model if isinstance(model, bytes) else bytes(memoryview(model))
    except TypeError:
        kind = type(model).__name__
        raise TypeError(f"model is of type {kind}; a path, or the bytes of a .tflite file, was expected") from None


def read_bytes(model: ModelSource) -> bytes:
    """Return the bytes of a model.

    Args:
        model: A path, bytes or a buffer.

    Raises:
        OSError: The file cannot be read.
    """
    return ModelContent(model).bytes
