"""Caches and bundles that are damaged at random: ``python -m tests.artifact.damaged_caches ROUNDS SEED``.

Each round damages one thing in a copy of a cache of two models, or in a bundle of them, and compiles both. Answers must
be right, with at most one warning, and within a minute; a bundle that is pinned must be refused. Prints what was wrong.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import tflgpu
from tests.artifact.cache.damage import DAMAGE, broken_pages, flip, garbage, not_a_folder, poison, wrong_settings
from tests.artifact.replaced_models import factor_of
from tests.safety.models import scaled
from tflgpu.artifact.cache import Cache, directory, pack

FACTORS = (2.0, 3.0)

SECONDS = 60

Change = Callable[[Path, random.Random], None]


def rewrite(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.choice(list(DAMAGE.values()))(path.read_bytes()))


def flip_bits(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    for _ in range(rng.choice((1, 1, 2, 9))):
        data = flip(data, rng.randrange(8 * len(data)))
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def special(path: Path, rng: random.Random) -> None:
    path.unlink()
    rng.choice((os.mkfifo, Path.mkdir, lambda p: p.symlink_to("/dev/zero"), lambda p: p.symlink_to("nowhere")))(path)


def change_mode(path: Path, rng: random.Random) -> None:
    path.chmod(rng.choice((0, 0o200, 0o622, 0o666, 0o777)))


def give_away(path: Path, rng: random.Random) -> None:
    if os.geteuid() == 0:
        os.chown(path, rng.randrange(1, 60000), -1)


def exchange(path: Path, rng: random.Random) -> None:
    shutil.copyfile(rng.choice(sorted({*path.parent.parent.glob("*/*.safetensors")} - {path})), path)


def on_index(damage: Callable[[Path], None]) -> Change:
    return lambda path, _: damage(path)


def on_folder(path: Path, rng: random.Random) -> None:
    folder = path.parents[rng.choice((0, 1))]
    shutil.move(folder, folder.with_name("moved"))
    rng.choice((os.mkfifo, Path.touch, lambda p: p.symlink_to("moved"), lambda p: None))(folder)


ENTRY: tuple[Change, ...] = (rewrite, flip_bits, flip_bits, cut, special, change_mode, give_away, exchange, on_folder)
INDEX: tuple[Change, ...] = (
    *map(on_index, (broken_pages, garbage, not_a_folder, poison, wrong_settings)),
    special,
    give_away,
)


def damage_cache(cache: Path, rng: random.Random) -> tflgpu.Options:
    if rng.random() < 0.2:
        (cache / "v1" / "models").joinpath(rng.choice(os.listdir(cache / "v1" / "models"))).unlink()  # so it is written
        rng.choice(INDEX)(cache / "v1" / "index" / "cache.db", rng)
    else:
        rng.choice(ENTRY)(rng.choice(sorted((cache / "v1").glob("*/*.safetensors"))), rng)
    return tflgpu.Options(precision="fp32", cache_files=tflgpu.CacheFiles(path=cache))


def damage_bundle(cache: Path, rng: random.Random) -> tflgpu.Options:
    bundle = cache.with_suffix(".bundle")
    pack(Cache([cache]), bundle)
    rng.choice((flip_bits, cut, rewrite))(bundle, rng)
    return tflgpu.Options(precision="fp32", cache_files=tflgpu.CacheFiles(path=bundle))


def fault_of_round(original: Path, place: Path, rng: random.Random) -> str | None:
    """The fault that was found in one round; None if there was none."""
    shutil.copytree(original, place)
    bundle = rng.random() < 0.3
    options = damage_bundle(place, rng) if bundle else damage_cache(place, rng)
    directory._reported.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for factor in FACTORS:
            answer = factor_of(tflgpu.compile(scaled(factor), options))
            if answer != factor:
                return f"answer {answer} for {factor}"
    given = [str(w.message) for w in caught]
    if len(given) > 1:
        return f"{len(given)} warnings: {given}"
    if bundle:
        pinned = hashlib.sha256(original.with_suffix(".bundle").read_bytes())
        try:
            tflgpu.compile(
                scaled(2.0),
                tflgpu.Options(
                    cache_files=tflgpu.CacheFiles(path=options.cache_files.path, bundle_digest=pinned.hexdigest())
                ),
            )
        except tflgpu.BundleError:
            return None
        return "a changed bundle was not refused"
    return None


def run(folder: Path, rounds: int, seed: int) -> list[str]:
    """The faults that were found in all rounds."""
    original, found = folder / "original", []
    for factor in FACTORS:
        tflgpu.compile(scaled(factor), tflgpu.Options(precision="fp32", cache_files=tflgpu.CacheFiles(path=original)))
    pack(Cache([original]), original.with_suffix(".bundle"))
    for number in range(rounds):
        signal.alarm(SECONDS)  # ends the process where a round hangs
        try:
            fault = fault_of_round(original, folder / str(number), random.Random(f"{seed} {number}"))
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        if fault is not None:
            found.append(f"round {number} of seed {seed}: {fault}")
        shutil.rmtree(folder / str(number), ignore_errors=True)
        (folder / f"{number}.bundle").unlink(missing_ok=True)
    signal.alarm(0)
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        results = run(Path(place), int(sys.argv[1]), int(sys.argv[2]))
    print(*results, f"{len(results)} of {sys.argv[1]} rounds went wrong", sep="\n")
    sys.exit(bool(results))
