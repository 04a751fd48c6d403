"""Compile for described GPUs with their makers' compilers: ``python -m tests.drivers.offline FOLDER [CHIP...]``.

FOLDER gets the compilers, if it does not have them; with ``none`` that is all. It also keeps what they say of each
program, so that a call goes on where an earlier one was interrupted. Compiles every template's cases and
eight models in each precision for each device, in the order of the call, the models for each executor that may be the
fastest there. Prints a row of a table for each device, and what spills.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from tests.drivers.offline.compilers import CompiledKernel, compilers_root, fetch_compilers
from tests.drivers.offline.programs import CHIPS, MODELS, Chip, case_programs, compiled, sources
from tflgpu.codegen.whole_kernels import PERSISTENT

SHARED = Path(os.environ.get("TFLGPU_SHARED", Path(__file__).parents[3] / "../shared"))


def programs(chip: Chip) -> Iterator[tuple[str, str]]:
    """Name and source of everything."""
    for precision in chip.precisions:
        for name, text in case_programs(chip, precision):
            yield f"{name}-{precision}", text
        for model in MODELS:
            data = (SHARED / "models" / f"{model}.tflite").read_bytes()
            for executor in chip.executors:
                yield f"{model}-{executor}-{precision}", sources(data, chip, precision, executor)


def compiled_once(text: str, chip: Chip, root: Path, folder: Path, name: str) -> list[CompiledKernel]:
    """The kernels that :func:`compiled` returns, or those that it returned earlier."""
    kept = root / "found" / f"{sha256(f'{chip.name} {text}'.encode()).hexdigest()}.json"
    if kept.exists():
        return [CompiledKernel(**facts) for facts in json.loads(kept.read_text())]
    found = compiled(text, chip, root, folder, name)
    kept.parent.mkdir(exist_ok=True)
    part = kept.with_suffix(".part")
    part.write_text(json.dumps([asdict(kernel) for kernel in found]))
    part.replace(kept)
    return found


def tried(chip: Chip, root: Path) -> str:
    """A row of the table. Prints what was refused and what spills."""
    kernels: dict[str, CompiledKernel] = {}
    count, refused = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text in programs(chip):
            count += 1
            try:
                found = compiled_once(text, chip, root, Path(folder), name)
            except ValueError as error:
                refused += 1
                print(f"{chip.model} refuses {name}: {error}", flush=True)
                continue
            for kernel in found:
                key = f"{name}-{kernel.name}" if kernel.template == PERSISTENT else kernel.name
                if kernel.spilled and key not in kernels:
                    print(f"{chip.model}, {name}: {kernel}", flush=True)
                kernels[key] = kernel
    registers = sorted(kernel.registers for kernel in kernels.values())
    spilling = sum(kernel.spilled > 0 for kernel in kernels.values())
    waves = [kernel.occupancy for kernel in kernels.values() if kernel.occupancy is not None]
    widths = sorted({kernel.width for kernel in kernels.values()})
    occupancy = f"{min(waves)} to {max(waves)}" if waves else "not said"
    columns = chip.model, chip.name, count, refused, len(kernels), spilling, registers[len(registers) // 2]
    return f"| {' | '.join(map(str, columns))} | {', '.join(map(str, widths))} | {occupancy} |"


def main() -> None:
    folder, *wanted = sys.argv[1:]
    root = compilers_root(Path(folder))
    if not (root / "usr/bin").exists():
        fetch_compilers(Path(folder))
    if wanted == ["none"]:
        return
    print("| device | chip | programs | refused | kernels | that spill | registers (median) | in step | waves |")
    print("|---|---|---|---|---|---|---|---|---|")
    chips = {chip.model: chip for chip in CHIPS}
    for model in wanted or chips:
        print(tried(chips[model], root), flush=True)


if __name__ == "__main__":
    main()
