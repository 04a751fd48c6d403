"""The folder of results: under its name there is never a part of them."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def result_folder(out: Path) -> Iterator[Path]:
    """Open a folder to write to. It gets the name ``out`` when this ends well, and is removed when it does not.

    Raises OSError if ``out`` is there already, or if nothing was written where this machine sees it.
    """
    if out.exists():
        raise FileExistsError(errno.EEXIST, "it is there already; give another name, or delete it", str(out))
    partial = out.absolute().with_name(f"{out.name}.partial")
    try:
        partial.mkdir()
    except FileExistsError as error:
        remedy = "another run writes to it, or was killed while it did; delete it then"
        raise FileExistsError(errno.EEXIST, remedy, str(partial)) from error
    try:
        yield partial
        if not any(partial.iterdir()):
            reason = "no results have arrived there; give a folder that all machines share"
            raise FileNotFoundError(errno.ENOENT, reason, str(partial))
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
