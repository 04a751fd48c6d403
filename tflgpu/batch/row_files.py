"""Files, folders, patterns and lists of files -> the rows of a job."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tflgpu.batch.listed_rows import ARCHIVES, ARRAYS, ListedRows, is_archive, list_arrays, list_images
from tflgpu.batch.row_source import RowSource
from tflgpu.batch.table_rows import PARQUET, READERS, TableRows
from tflgpu.inputs import InputReader
from tflgpu.inputs.input_reader import IMAGES
from tflgpu.model.tensor_info import TensorInfo

LIST = ".txt"  # a file with the path of a file in each line
TABLES = (PARQUET, *READERS)
SUFFIXES = (ARRAYS, *TABLES, *ARCHIVES, *IMAGES)

# Characters of a pattern.
PATTERN = "*?["


def open_rows(
    paths: Sequence[Path],
    model: bytes,
    inputs: Sequence[TensorInfo],
    *,
    columns: Mapping[str, str] | None = None,
    mean: float | None = None,
    std: float | None = None,
) -> RowSource:
    """Return the rows of files, in the alphabetical order of the files of each folder and of each pattern.

    Args:
        paths: Files; folders, with all folders below them; patterns such as ``images/*.jpg``; and ``.txt`` files that
            list others, one in each line.
        model: The bytes of the model, whose metadata may say how pixels are normalized.
        inputs: The inputs of the model.
        columns: The names of columns of tables by names of inputs, where they differ.
        mean: As of :class:`tflgpu.inputs.InputReader`.
        std: As of :class:`tflgpu.inputs.InputReader`.

    Raises:
        OSError: A file is not there.
        ValueError: The files are of several kinds, or one does not fit the model.
    """
    files = [each for path in paths for each in _found(path)]
    kinds = {_kind(file) for file, _ in files}
    if len(kinds) > 1:
        raise ValueError(f"the inputs end in {' and '.join(sorted(kinds))}; give those of one kind")
    if not files:
        raise ValueError("the inputs name no files")
    names = tuple(str(file) for file, _ in files)
    known = [info.name for info in inputs]
    if unknown := sorted(set(columns or ()) - set(known)):
        raise ValueError(f"columns names {unknown}; the model has the inputs {known}")
    if kinds <= set(TABLES):
        return TableRows(names, tuple(inputs), dict(columns or {}))
    if len(inputs) != 1:
        raise ValueError(
            f"the model has the inputs {', '.join(map(repr, known))}; give a table, such as Parquet, with a column "
            "for each"
        )
    one_row = replace(inputs[0], shape=(1, *inputs[0].shape[1:]))
    listing = list_arrays([file for file, _ in files], one_row) if kinds == {ARRAYS} else list_images(files)
    return ListedRows(names, listing, one_row, InputReader(model, [one_row], mean=mean, std=std))


def _found(path: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield the files of an argument, each with its label: the folder below the one that was given, if it has one."""
    if path.is_dir():
        files = sorted(
            (each for each in path.rglob("*") if _suffix(each) and each.is_file() and not _hidden(each, path)),
            key=lambda each: each.relative_to(path).parts,
        )
        if not files:
            raise ValueError(f"{path} has no file that ends in {', '.join(SUFFIXES)}")
        labels = [each.relative_to(path).parent.as_posix() for each in files]
        for file, label in zip(files, labels, strict=True):
            yield file.absolute(), None if set(labels) == {"."} else label
    elif not path.exists() and any(c in str(path) for c in PATTERN):
        matches = sorted(each for each in map(Path, glob.glob(str(path), recursive=True)) if each.is_file())
        if not matches:
            raise FileNotFoundError(f"no file matches {path}")
        yield from ((each.absolute(), None) for each in matches)
    elif path.suffix.lower() == LIST:
        lines = filter(None, map(str.strip, path.read_text().splitlines()))
        yield from ((path.absolute().parent / line, None) for line in lines)
    else:
        yield path.absolute(), None


def _hidden(file: Path, folder: Path) -> bool:
    """Whether readers of folders leave a file out, as those of Parquet do: for what starts with a dot or a line."""
    return any(part[0] in "._" for part in file.relative_to(folder).parts)


def _suffix(file: Path) -> str | None:
    """Return the suffix of a file that may have rows."""
    return next((suffix for suffix in SUFFIXES if file.name.lower().endswith(suffix)), None)


def _kind(file: Path) -> str:
    """Raise ValueError for a file of another kind, and OSError for a table or an array that is not there."""
    suffix = _suffix(file)
    if suffix is None:
        raise ValueError(f"{file} ends in none of {', '.join(SUFFIXES)}")
    if suffix in IMAGES or is_archive(file):
        return "an image's suffix"
    file.stat()
    return suffix
