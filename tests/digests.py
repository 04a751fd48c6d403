"""Digests of what models compile to: ``python -m tests.digests MODEL... [--batch N] [--out FILE]``.

For work that must not change behaviour. Run it before and after, and compare the files: equal lines mean equal plans
and equal generated source, white space, comments and names aside. No device is needed.

Each model is compiled for both families of kernels and for NVIDIA's instructions, for the executors that these have,
in both precisions. ``python -m benchmarks.zoo resnet50 FILE`` with ``--batch 64`` brings kernels that small models do
not choose. An identifier of the source counts as the place where it first occurs in its program, except the words of
OpenCL C itself.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from itertools import product, repeat
from pathlib import Path
from typing import Any

import numpy as np

from tflgpu.artifact.artifact import Artifact
from tflgpu.compiler import compile_model
from tflgpu.errors import TflgpuError
from tflgpu.options import Options, Shapes
from tflgpu.target import Target

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[A-Za-z_]\w*|\.?\d[\w.]*(?:[-+]\d+f?)?|\S', re.DOTALL)
NUMBER_OF_LANES = r"(?:2|3|4|8|16)?"
RESERVED = re.compile(
    rf"(?:u?(?:char|short|int|long)|float|half|double|bool){NUMBER_OF_LANES}|void|__\w+|const|restrict|static|inline"
    r"|volatile|if|else|for|while|do|return|switch|case|default|break|continue|define|pragma|unroll|asm|struct|goto"
    r"|get_\w+|v(?:load|store)\w*|as_\w+|convert_\w+|a?max|min|fma|mad|clamp|select|barrier|mem_fence|atomic_\w+|f(?:max|min)"
    r"|(?:native_|half_)?(?:exp|log|sqrt|rsqrt|sin|cos|tanh|pow)|NAN|INFINITY|INT_M(?:IN|AX)|s[0-9a-f]+|[xyzw]|lo|hi"
)

TARGETS = {
    "cpu": {"family": "cpu", "compute_units": 2},
    "gpu": {"family": "gpu", "compute_units": 40},
    "nvidia": {"family": "gpu", "compute_units": 132, "ptx": True, "matrix_unit": "mma.m16n8k16"},
}
EXECUTORS = {"cpu": ("launch", "claiming"), "gpu": ("launch", "persistent"), "nvidia": ("launch", "persistent")}
STORAGES = ("float", "half")


def canonical_source(text: str) -> Iterator[str]:
    """The tokens of a program, names replaced by numbers in the order in which they occur."""
    names: dict[str, str] = {}
    for token in TOKEN.findall(text):
        if token.startswith(("//", "/*")):
            continue
        is_name = (token[0].isalpha() or token[0] == "_") and not RESERVED.fullmatch(token)
        yield names.setdefault(token, f"n{len(names)}") if is_name else token


def canonical_plan(value: Any, functions: dict[str, int]) -> Iterator[str]:
    """The values of an executable in the order of their fields: buffers by their content, functions by number."""
    if is_dataclass(value):
        for field in fields(value):
            inner = getattr(value, field.name)
            if field.name == "function":
                yield str(functions.setdefault(inner, len(functions)))
            elif field.name != "key":  # a name of what else is compared
                yield from canonical_plan(inner, functions)
    elif isinstance(value, np.ndarray):
        yield blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
    elif isinstance(value, tuple):
        yield "("
        for item in value:
            yield from canonical_plan(item, functions)
        yield ")"
    else:
        yield repr(value)


def digests(artifact: Artifact) -> tuple[str, str]:
    """Digests of the source and of the plans of a model's partitions on the device."""
    source, plan = (blake2b(digest_size=8) for _ in range(2))
    for piece in artifact.pieces:
        for token in canonical_source(piece.source):
            source.update(token.encode() + b" ")
        for item in canonical_plan(piece.executable, {}):
            plan.update(item.encode() + b" ")
    return source.hexdigest(), plan.hexdigest()


def lines_of(model: Path, batch: int | None) -> list[str]:
    """A line for each target: model, target, executor, storage, digests of source and plan."""
    data, found = model.read_bytes(), []
    choices = ((name, executor) for name in TARGETS for executor in EXECUTORS[name])
    for (name, executor), storage in product(choices, STORAGES):
        target = Target(**TARGETS[name], executor=executor, storage=storage)  # type: ignore[arg-type]
        try:
            digest = " ".join(digests(*compile_model(data, Options(shapes=Shapes(batch=batch)), target)))
        except (TflgpuError, ValueError) as error:
            digest = f"{type(error).__name__}: {' '.join(str(error).split())}"
        found.append(f"{model.stem} {name} {executor} {storage} {digest}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--out", type=Path, default=Path("/dev/stdout"))
    parser.add_argument("--batch", type=int, help="for models whose inputs have a batch axis")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool, options.out.open("w") as out:
        for lines in pool.map(lines_of, options.models, repeat(options.batch)):
            print(*lines, sep="\n", file=out, flush=True)


if __name__ == "__main__":
    sys.exit(main())
