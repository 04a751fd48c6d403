"""The measured rows of all devices as a page of the documentation: ``python -m benchmarks.model_types.page``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "reference" / "model-types.md"

# The beginning of names of results; the type of the device follows.
NAME = "model-types"

Row = Mapping[str, Any]

HEAD = """# Types of models

TensorFlow Lite stores a network in six ways. Here is one network in all of them, MobileNetV1 0.25 224, on the device
with tflgpu and on LiteRT's CPU kernels.

| type | what it is |
|---|---|
| float32 | as it was trained |
| float16 | float16 weights; operators compute in float |
| dynamic range | int8 weights, float activations |
| int8 | integer weights, activations, input and output, by ranges that were found after training |
| int8 with float fallback | the same, but input, output and operators without integers (here SOFTMAX) are float |
| quantization-aware training | uint8, by ranges that were learned in training |

tflgpu sees integers as the numbers that they stand for, and rounds activations to what their type can hold
([how](../internals/design.md#quantized-models)). So every type runs on the device. It takes the time of float32 and of
the rounding, where LiteRT has integer kernels for CPUs that are faster than its float ones. fp16 is meant for GPUs; on
CPUs it saves memory, but no time, and is not the default.

With dynamic range, LiteRT rounds activations to int8 in every run. tflgpu does so only where a CPU's integer unit
makes a layer much faster; elsewhere it is nearer to the float32 model. Integer kernels and rounded floats may differ by
a step in each layer; SOFTMAX makes more of it.

Each table below is of one device.

* *Delegate* is what TensorFlow Lite's documentation says of its GPU delegate
  ([Delegates by model type](https://www.tensorflow.org/lite/performance/delegates)); all else is of these models.
* Errors are the largest difference of a probability, over 1001 classes and all photos, and for how many photos the best
  class is the same. Steps are those of an integer output. *From float32* is the distance to the float32 model in
  LiteRT: what the type itself costs. The last type has a training of its own, so that it cannot be compared.
* Latency is in milliseconds, from host array to host array, medians of alternating rounds.

The first and the last file are published models. The others are made of the first one by Google's AI Edge Quantizer,
with the photos to calibrate.
"""

DEVICE = """
## {device}

{date}, {platform}, driver {driver}; LiteRT's CPU kernels with {threads} threads on {cores} cores; {packages}.
Written by `{command}`, which needs the extra `benchmark`, to `benchmarks/results/{file}`.
"""


def write_page() -> None:
    """From all results that there are."""
    PAGE.write_text(page({path.name: json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{NAME}-*.json"))}))


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """results: the files that benchmarks.publish writes, by their names."""
    return "\n".join((HEAD.rstrip(), *(line for file, found in results.items() for line in _device(file, found)), ""))


def _device(file: str, found: Mapping[str, Any]) -> Iterator[str]:
    rows: Sequence[Row] = found["rows"]
    by_type: dict[str, list[Row]] = {}
    for row in rows:
        by_type.setdefault(row["type"], []).append(row)
    precisions = list(dict.fromkeys(row["precision"] for row in rows))
    columns = "{} from LiteRT", "same best class, {}", "tflgpu {} from float32", "tflgpu {}", "{} / LiteRT"
    distance, same, cost, time, ratio = ([words.format(p) for p in precisions] for words in columns)
    places = (
        "what runs where",
        "file, kB",
        "input",
        "output",
        "delegate",
        "operators on the device",
        "on the CPU",
        "kernels",
    )
    packages = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    yield DEVICE.format(packages=packages, file=file, **found)
    yield from _table(places, (_places(of_type[0]) for of_type in by_type.values()))
    yield ""
    yield from _table(("errors", *distance, *same, "LiteRT from float32", *cost), map(_errors, by_type.values()))
    yield ""
    yield from _table(("latency, ms", *time, "LiteRT", *ratio), map(_times, by_type.values()))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _places(row: Row) -> list[str]:
    on_device = f"{row['operators'] - row['cpu_operators']} of {row['operators']}"
    size = f"{row['file_bytes'] / 1e3:.0f}"
    counts = on_device, str(row["cpu_operators"]), str(row["kernels"])
    return [row["type"], size, row["input"], row["output"], "yes", *counts]


def _errors(rows: Sequence[Row]) -> list[str]:
    return [
        rows[0]["type"],
        *(_error(row) for row in rows),
        *(f"{row['same_top1']} of {row['photos']}" for row in rows),
        _number(rows[0]["litert_error_to_float32"]),
        *(_number(row["error_to_float32"]) for row in rows),
    ]


def _error(row: Row) -> str:
    steps = row["error_in_steps"]
    return _number(row["max_error"]) + ("" if steps is None else f" ({steps:.0f} step{'s' * (round(steps) != 1)})")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0e}" if 0 < value < 1e-3 else f"{value:.3f}".rstrip("0").rstrip(".")


def _times(rows: Sequence[Row]) -> list[str]:
    times = [*(row["tflgpu_ms"] for row in rows), rows[0]["litert_ms"]]
    return [rows[0]["type"], *(f"{time:.2f}" for time in times), *(f"{row['ratio']:.2f}" for row in rows)]


if __name__ == "__main__":
    write_page()
