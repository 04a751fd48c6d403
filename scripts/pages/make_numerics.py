"""The results of numbers at the edge of their types: ``python -m scripts.pages.make_numerics`` writes
docs/reference/numerics.md.

Every line of its tables is a run, of LiteRT and of tflgpu on the first OpenCL device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.pages.numerics import Corner, explanation, run_litert, run_tflgpu, sections
from tflgpu.model.known_differences import KNOWN_DIFFERENCES, SHARED_BIAS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "numerics.md"

HEAD = """# Numbers at the edge

What LiteRT's plain and its reference kernels do with NaN, infinity, denormal numbers, overflow, division by zero and
indices out of range, and what tflgpu does in fp32. Where LiteRT's two agree, tflgpu gives the same, but for the lines
that say why not. `python -m scripts.pages.make_numerics` writes this page from runs; `tests/ops/test_numerics.py`
repeats them on each OpenCL runtime, for both families of kernels. [numerics.md](../internals/numerics.md) has reasons,
half precision and quantized models, operator by operator.

A result that stands for two columns is written once. *An error* is LiteRT's at run time. LiteRT's default kernels
(XNNPACK) have a column only where they give something else than the plain ones.

A kernel on a device cannot report an error. With `Numerics(checks=True)`, or `tflgpu run --checks`, more kernels look
for what LiteRT refuses at run time, and `run` raises ValueError with index, code and name of the operator for every
fault that they find. By then the run is over: variables have their next values.

In fp16, tensors between kernels are halves: a finite number beyond 65504 becomes 65504, infinities and NaN stay what
they are, and numbers below 6e-8 become 0. Model inputs and outputs are float32 and keep their numbers.

Some drivers compute without denormal numbers. Then these are zeros, as OpenCL allows for GPUs.
"""

TABLE = "| operator | inputs | LiteRT, plain | reference | tflgpu | |\n|---|---|---|---|---|---|"


QUANTIZED = """## Quantized operators

Integers are LiteRT's, or one step from them where it rounds twice; those of 16-bit activations are the same. In these
operators, where LiteRT's kernel sets agree, tflgpu stays nearer the exact answer. `tflgpu diff` says so of outputs that
depend on one.

| operator | where | LiteRT | tflgpu |
|---|---|---|---|"""


def rows(corners: Sequence[Corner]) -> Iterator[str]:
    judges = (run_litert(corners, kernels) for kernels in ("plain", "reference", "default"))
    for corner, plain, reference, default in zip(corners, *judges, strict=True):
        own, notes = run_tflgpu(corner), []
        if not default.equals(plain):
            notes.append(f"LiteRT's default kernels: {default}")
        if plain.equals(reference) and not own.equals(plain):
            notes.append(explanation(corner))
        elif not plain.equals(reference):
            notes.append("LiteRT's kernels differ" if not reference.refusal else "no reference kernel")
        target = f" to {corner.dtype}" if corner.code == "CAST" else ""
        source = f" {corner.inputs[0].dtype.name}" if corner.code == "CAST" else ""
        second = "same" if reference.equals(plain) else "none" if reference.refusal else reference
        third = "same" if own.equals(plain) else own
        cells = (f"{corner.code}{source}{target}", corner.description, plain, second, third, "; ".join(notes))
        yield f"| {' | '.join(map(str, cells))} |"


def page() -> str:
    parts = [HEAD]
    for title, corners in sections().items():
        parts.append("\n".join((f"## {title}\n", TABLE, *rows(corners), "")))
    return "\n".join((*parts, QUANTIZED, *quantized_rows(), ""))


def quantized_rows() -> Iterator[str]:
    """The operators of integers in which tflgpu does not follow LiteRT."""
    for known in (*KNOWN_DIFFERENCES, SHARED_BIAS):
        yield f"| {', '.join(known.codes)} | {known.where} | {known.litert} | {known.tflgpu} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
