"""The files of a folder that models take."""

from __future__ import annotations

from pathlib import Path

ARRAYS = (".npy", ".npz")
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def input_files(folder: Path, suffixes: tuple[str, ...] = ARRAYS + IMAGES) -> list[Path]:
    """Return the files of a folder that are inputs, in the alphabetical order of their names.

    Args:
        folder: Its own folders are not searched.
        suffixes: Ends of names, with the dot, in lower case.

    Raises:
        OSError: The folder cannot be read.
        ValueError: It has no such file.
    """
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in suffixes and p.is_file())
    if not files:
        raise ValueError(f"{folder} has no file that ends in {', '.join(suffixes)}")
    return files
