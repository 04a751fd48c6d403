"""Rows that were read for a model, and rows that are files, members of archives, or elements of arrays."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from io import BytesIO
from math import prod
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tflgpu.inputs import InputReader, naming
from tflgpu.inputs.images import decode_image, image_shape
from tflgpu.inputs.input_reader import IMAGES
from tflgpu.model.tensor_info import TensorInfo


@dataclass(frozen=True)
class Rows:
    """Rows that were read together.

    kept: the columns that stay beside the results, of all rows. inputs: by names of inputs, those of the rows that are
    good, in their order. errors: by the place of a row in ``kept``, why it is not good; each names its file and row.
    """

    kept: pa.Table
    inputs: Mapping[str, NDArray[Any]]
    errors: Mapping[int, str]

    @property
    def good(self) -> list[int]:
        """The places of the rows that are good."""
        return [place for place in range(len(self.kept)) if place not in self.errors]


class RowSource(Protocol):
    """Numbered rows in files, which any process can read that has the files under the same paths."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that have the rows."""

    @property
    def count(self) -> int:
        """The number of rows."""

    def read(self, start: int, stop: int, size: int) -> Iterator[Rows]:
        """Yield rows in order.

        Args:
            start: The first row.
            stop: The row after the last one.
            size: Most rows that come together.
        """


def fitted(info: TensorInfo, row: NDArray[Any]) -> NDArray[Any]:
    """Return a row in the shape that the input's rows have.

    Args:
        info: The input; its first axis counts rows.
        row: One row. It may be flat, as in Parquet.

    Raises:
        ValueError: It has another shape.
    """
    expected = info.shape[1:]
    if row.shape == (prod(expected),):
        row = row.reshape(expected)
    free = {axis - 1 for axis in info.free_axes}
    if row.ndim != len(expected) or any(
        size != given for axis, (size, given) in enumerate(zip(expected, row.shape, strict=True)) if axis not in free
    ):
        raise ValueError(f"its shape is {list(row.shape)}; {list(expected)} was expected")
    return row


def stacked(info: TensorInfo, rows: list[NDArray[Any]]) -> NDArray[Any]:
    """Return rows along a new first axis.

    Args:
        info: The input, for the shape and the type of no rows.
        rows: Arrays of one shape; there may be none.
    """
    return np.stack(rows) if rows else np.empty((0, *info.shape[1:]), info.dtype)


ARRAYS, ARCHIVES = ".npy", (".zip", ".tar", ".tar.gz", ".tgz")

# Members of WebDataset's samples that are text, and become columns.
TEXTS = (".cls", ".txt", ".json")

# Archives, and arrays in memory maps, that stay open.
OPEN = 8


@dataclass(frozen=True)
class ListedRows:
    """Rows for the only input of a model.

    listing: what tells a row from others, and stays beside its result: ``path``, and ``row`` of an array, ``member``
    of an archive, ``label``: the folder below the one that was given. info: of the input with one row.
    """

    files: tuple[str, ...]
    listing: pa.Table
    info: TensorInfo
    images: InputReader

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.listing)

    def read(self, start: int, stop: int, size: int) -> Iterator[Rows]:
        """Yield rows in order.

        Args:
            start: The first row.
            stop: The row after the last one.
            size: Most rows that come together.
        """
        for begin in range(start, stop, size):
            yield self._read(self.listing.slice(begin, min(size, stop - begin)))

    def _read(self, listing: pa.Table) -> Rows:
        rows, errors = list[NDArray[Any]](), dict[int, str]()
        for place, row in enumerate(listing.to_pylist()):
            try:
                rows.append(fitted(self.info, self._row(row)))
            except MemoryError:
                raise
            except Exception as error:  # decoders raise anything for a damaged file
                errors[place] = f"{_named(row)}: {_reason(error, row['path'])}"
        return Rows(listing, {self.info.name: stacked(self.info, rows)}, errors)

    def _row(self, row: dict[str, Any]) -> NDArray[Any]:
        path, member = Path(row["path"]), row.get("member")
        if "row" in row:
            element: NDArray[Any] = rows_of(path, self.info)[row["row"]]
            return element
        if member is None:
            image: NDArray[Any] = self.images.read([path])[0][0]
            return image
        with open_member(str(path), member) as file:
            if member.endswith(ARRAYS):
                array: NDArray[Any] = np.load(file, allow_pickle=False)
                return array[0] if array.shape == self.info.shape else array
            pixels = decode_image(BytesIO(file.read()), image_shape(self.info)[2])
        return self.images.image(pixels).reshape(self.info.shape[1:])


def _named(row: dict[str, Any]) -> str:
    inside = row.get("member") if row.get("member") is not None else row.get("row")
    kind = "" if inside is None else f": {'row' if 'row' in row else 'member'} {inside}"
    return f"{row['path']}{kind}"


def _reason(error: Exception, path: str) -> str:
    """Return the text of an error without the file's name, which stands before it."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.removeprefix(f"{path}: ") or type(error).__name__


def list_arrays(files: Sequence[Path], info: TensorInfo) -> pa.Table:
    """Return a listing with a row for each element along the first axis of arrays.

    Args:
        files: .npy files.
        info: The input that takes their rows.

    Raises:
        ValueError: An array does not fit the input.
    """
    counts = [len(rows_of(file, info)) for file in files]
    names = np.repeat(np.array([*map(str, files)], object), counts)
    return pa.table({"path": names, "row": np.concatenate([*map(np.arange, counts)])})


def list_images(files: Iterable[tuple[Path, str | None]]) -> pa.Table:
    """Return a row for each image and each member of an archive.

    Args:
        files: Each with its label, if it has one.

    Raises:
        OSError: An archive cannot be read.
        ValueError: A file is no archive, or has no members that are images or arrays.
    """
    rows = list[dict[str, Any]]()
    for file, label in files:
        found = {"path": str(file)} | ({} if label is None else {"label": label})
        if is_archive(file):
            rows += [found | member for member in _members(file)]
        else:
            rows.append(found)
    names = sorted({name for row in rows for name in row}, key=lambda name: (name != "path", name != "member", name))
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def is_archive(file: Path) -> bool:
    """Return whether a file's name is that of an archive.

    Args:
        file: It need not exist.
    """
    return file.name.lower().endswith(ARCHIVES)


def _members(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the members that are rows; texts of the same name, as WebDataset has them, are columns beside them."""
    names = open_archive(str(file)).names
    texts = {name for name in names if name.endswith(TEXTS)}
    rows = [name for name in names if name.lower().endswith((*IMAGES, ARRAYS))]
    if not rows:
        raise ValueError(f"{file} has no member that ends in {', '.join((*IMAGES, ARRAYS))}")
    for name in rows:
        stem = str(PurePosixPath(name).with_suffix(""))
        found: dict[str, Any] = {"member": name}
        for suffix in TEXTS:
            if stem + suffix in texts:
                with open_member(str(file), stem + suffix) as text:
                    found[suffix[1:]] = text.read().decode(errors="replace").strip()
        yield found


@dataclass(frozen=True)
class Archive:
    """A zip or a tar file that stays open.

    names: of the members that are files. open: opens one of them to read.
    """

    names: tuple[str, ...]
    open: Callable[[str], IO[bytes]]


@lru_cache(OPEN)
def open_archive(path: str) -> Archive:
    """Open an archive. The last few that were opened stay open.

    Args:
        path: A zip or tar file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no archive.
    """
    try:
        if path.lower().endswith(".zip"):
            zipped = zipfile.ZipFile(path)
            return Archive(tuple(info.filename for info in zipped.infolist() if not info.is_dir()), zipped.open)
        tar = tarfile.open(path)  # noqa: SIM115  it stays open
        return Archive(tuple(info.name for info in tar if info.isfile()), partial(_open_file, tar))
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise ValueError(f"{path} is no archive: {error}") from error


def _open_file(tar: tarfile.TarFile, member: str) -> IO[bytes]:
    file = tar.extractfile(member)
    if file is None:
        raise ValueError(f"{member} is no file")
    return file


def open_member(path: str, member: str) -> IO[bytes]:
    """Open a member of an archive to read.

    Args:
        path: The archive.
        member: The name in it.
    """
    return open_archive(path).open(member)


@lru_cache(OPEN)
def _mapped(path: Path) -> NDArray[Any]:
    return np.lib.format.open_memmap(path, mode="r")


def rows_of(path: Path, info: TensorInfo) -> NDArray[Any]:
    """Return the rows of an array, which stay in the file until they are used.

    Args:
        path: An .npy file of rows, or of a single row.
        info: The input that takes them.

    Returns:
        An array whose first axis counts rows.

    Raises:
        OSError: The file cannot be read.
        ValueError: The array does not fit the input. The message names the file.
    """
    row = info.shape[1:]
    with naming([path]):
        array = _mapped(path)
        if array.dtype != info.dtype and not (array.dtype.kind == "f" and info.dtype == "float32"):
            raise ValueError(f"its element type is {array.dtype}; {info.dtype} was expected")
        if array.shape == row:
            return array[None]
        if array.shape[1:] != row:
            raise ValueError(f"its shape is {list(array.shape)}; rows of {list(row)} were expected")
    return array
