"""Fetch the models, labels and pictures that the examples name: 20 MB, from the public repositories that have them.

    python examples/download.py

They go to the folders models, labels and images below the working directory; what is there already stays as it is.
"""

from __future__ import annotations

import csv
import hashlib
import io
import sys
from pathlib import Path
from urllib.request import urlopen

from PIL import Image

SOURCES = Path(__file__).with_name("files.csv")


def download(path: Path, url: str, sha256: str) -> None:
    """Raises OSError if the file cannot be had, ValueError if it is another one than expected."""
    with urlopen(url, timeout=60) as response:
        content = response.read()
    if sha256 and hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{url} has changed: its SHA-256 is not {sha256}")
    if url.endswith(".bmp"):
        png = io.BytesIO()
        Image.open(io.BytesIO(content)).save(png, "png")
        content = png.getvalue()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def main() -> None:
    with SOURCES.open(newline="") as table:
        rows = list(csv.DictReader(table))
    for row in rows:
        path = Path(row["file"])
        if path.exists():
            print(f"{path} is there")
            continue
        try:
            download(path, row["url"], row["sha256"])
        except (OSError, ValueError) as error:
            sys.exit(f"{path}: {error}")
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
