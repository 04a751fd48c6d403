"""Try tflgpu on an emulated ARM board: ``python -m scripts.try_on_arm FOLDER``.

Needs root, and the packages mmdebstrap and qemu-user-static of Debian. Below FOLDER it unpacks an arm64 root of
Debian trixie with Python 3.13 and PoCL, and installs a wheel of this tree there, with aarch64 wheels of what it needs.
QEMU then runs in it ``tflgpu devices``, ``tflgpu demo``, a row of every second operator of the operators' table, and
three models, whose answers by LiteRT come from this machine. LiteRT itself does not stand the emulation.

Prints what it does and what came of it. The exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from itertools import cycle
from pathlib import Path

import numpy as np

import tflgpu
from tests.drivers.check_device import outcome
from tests.drivers.checks import SHARED, Program, answers, of_row, some_values
from tests.drivers.debian import configured_mirror
from tests.ops.table import ROWS
from tflgpu.options import Options, Precision

REPOSITORY = Path(__file__).parents[1]
RELEASE, PYTHON = "trixie", "3.13"
PACKAGES = ("python3", "pocl-opencl-icd", "ocl-icd-libopencl1", "coreutils", "dash")
BINFMT = Path("/proc/sys/fs/binfmt_misc")
FORMAT_OF_QEMU = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")
GLIBC = 41  # the release has 2.41; wheels name the oldest that they run with
PLATFORMS = ("manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in range(17, GLIBC + 1)))
# A Raspberry Pi 5's. QEMU's default also signs pointers, as Debian's libraries ask for, and takes four times as long.
CPU = "cortex-a76"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
FOR_TESTS = ("ai-edge-litert", "hypothesis", "pytest")
MODELS = ("trained_lstm", "kws_ref_model", "mobilenet_v1_0.25_224_1_default_1")

# Parts of an output's range, and the quanta that 8-bit answers may be off by.
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2}
QUANTA = 2


def emulate() -> None:
    """Let the kernel run arm64 programs by QEMU. Raises OSError if that is not allowed or a package is missing."""
    if not (BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT)], check=True)
    if not (BINFMT / "qemu-aarch64").exists():
        (BINFMT / "register").write_text(FORMAT_OF_QEMU.read_text().splitlines()[0])


def make_root(root: Path) -> None:
    """Unpack the packages and what they need, without their scripts, which would be emulated for minutes."""
    include = f"--include={','.join(PACKAGES)}"
    mirror = configured_mirror()
    root.parent.mkdir(parents=True, exist_ok=True)  # mmdebstrap makes only the last folder
    subprocess.run(["mmdebstrap", "--arch=arm64", "--variant=extract", include, RELEASE, str(root), mirror], check=True)
    for name in ("bin", "lib", "sbin"):
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    for name in ("proc", "root", "sys"):
        (root / name).mkdir(exist_ok=True)


def install(root: Path) -> None:
    """Install the wheel, what it needs, and what the tests need. It is pip on this machine that installs."""
    wheels, site = root / "wheels", root / "site"
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(REPOSITORY)], check=True)
    platforms = [f"--platform={each}" for each in PLATFORMS]
    options = ["--target", str(site), "--upgrade", "--python-version", PYTHON, "--only-binary=:all:", *platforms]
    subprocess.run([*pip, "install", *options, *map(str, wheels.glob("*.whl")), *FOR_TESTS], check=True)


def prepare(root: Path) -> None:
    """Copy the tests, and the three models with inputs and LiteRT's answers."""
    work = root / "work"
    for name in ("tests", "scripts"):
        shutil.copytree(REPOSITORY / name, work / name, dirs_exist_ok=True)
    for name in MODELS:
        path = SHARED / "models" / f"{name}.tflite"
        inputs = [some_values(info.shape, np.dtype(info.dtype)) for info in tflgpu.inspect(path).model.inputs]
        arrays = {f"input_{n}": array for n, array in enumerate(inputs)}
        arrays |= {f"answer_{n}": array for n, array in enumerate(answers(path, inputs))}
        np.savez(work / f"{name}.npz", **arrays)  # type: ignore[arg-type]
        shutil.copy(path, work)


def in_root(root: Path, *command: str) -> int:
    """Run a command in the root. Returns its exit code."""
    print(f"$ {' '.join(command)}", flush=True)
    begin = time.perf_counter()
    environment = {"PATH": PATH, "HOME": "/root", "PYTHONPATH": "/work:/site", "LC_ALL": "C.UTF-8", "QEMU_CPU": CPU}
    steps = 'for each in proc dev sys; do mount --bind "/$each" "$0/$each"; done; exec chroot "$0" "$@"'
    namespace = ["unshare", "--mount", "sh", "-c", steps, str(root)]
    finished = subprocess.run([*namespace, *command], env=environment, check=False)
    print(f"exit code {finished.returncode} after {time.perf_counter() - begin:.0f} s", flush=True)
    return finished.returncode


def check_rows() -> int:
    """Check a row of every second operator with a CPU's kernels. Returns how many are wrong."""
    first = [*{row.op: row for row in reversed(ROWS)}.values()][::2]
    wrong = 0
    for row, precision in zip(first, cycle(PRECISIONS), strict=False):
        fault = outcome(of_row(row, fused=True), Program("cpu", precision), 0)
        wrong += bool(fault)
        print(f"{row.name}, {precision}: {fault or 'right'}", flush=True)
    print(f"{len(first)} rows, {wrong} wrong", flush=True)
    return wrong


def check_models() -> int:
    """Compare the models with the answers that were brought along. Returns how many are wrong."""
    wrong = 0
    for name in MODELS:
        with np.load(f"/work/{name}.npz") as file:
            arrays = dict(file)
        inputs = [arrays[f"input_{n}"] for n in range(sum(key.startswith("input") for key in arrays))]
        for precision in PRECISIONS:
            model = tflgpu.compile(f"/work/{name}.tflite", Options(precision=precision, cache="off"))
            error = 0.0
            for n, (info, got) in enumerate(zip(model.outputs, model.run(inputs).values(), strict=True)):
                right = arrays[f"answer_{n}"].astype(np.float64)
                extent = max(right.max(), 0) - min(right.min(), 0)
                allowed = QUANTA if info.quantization else TOLERANCE[precision] * (extent or 1.0)
                error = max(error, float(np.abs(got - right).max()) / allowed)
            wrong += error > 1
            size = len(model.source)
            print(f"{name}, {precision}: {error:.2g} of the tolerance, {size} characters of source", flush=True)
    print(f"{2 * len(MODELS)} runs of models, {wrong} wrong", flush=True)
    return wrong


def inside(what: str) -> int:
    """Run the checks in the root of the other system."""
    return int({"rows": check_rows, "models": check_models}[what]() > 0)


def main() -> int:
    """Make the root if it is not there, and try everything in it."""
    if sys.argv[1] == "--inside":
        return inside(sys.argv[2])
    root = Path(sys.argv[1]).resolve() / "root"
    emulate()
    if not (root / "usr/bin/python3").exists():
        print(f"Debian {RELEASE} for arm64 is unpacked to {root}: {', '.join(PACKAGES)}", flush=True)
        make_root(root)
    print(f"tflgpu, {', '.join(FOR_TESTS)} and what they need are installed to {root / 'site'}", flush=True)
    install(root)
    print(f"LiteRT's answers of {', '.join(MODELS)} are computed on this machine", flush=True)
    prepare(root)
    python = "/usr/bin/python3"
    codes = [
        in_root(root, python, "-m", "tflgpu", "devices"),
        in_root(root, python, "-m", "tflgpu", "demo"),
        in_root(root, python, "-m", "scripts.try_on_arm", "--inside", "rows"),
        in_root(root, python, "-m", "scripts.try_on_arm", "--inside", "models"),
    ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
