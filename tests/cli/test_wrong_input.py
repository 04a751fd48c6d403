"""Every verb with everything that can be wrong: one line on stderr that names the file, and no traceback."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from PIL import Image

import tflgpu
from tests.cli.command import MODEL, detector_model, invoke
from tflgpu.model.text import printable
from tflgpu.model.writer import ModelBuilder

GOOD = MODEL.read_bytes()

# Files that are no model.
MODELS = {
    "missing.tflite": None,
    "empty.tflite": b"",
    "text.tflite": b"I am no model",
    "cut.tflite": GOOD[: len(GOOD) // 2],
    "damaged.tflite": GOOD[:400] + b"\xff" * 64 + GOOD[464:],
    "folder": None,
    "a\x1b[31m[bold]\n.tflite": b"",
}
VERBS_WITH_MODEL = (
    "inspect {}",
    "inspect {} --device auto",
    "run {} {image.png}",
    "benchmark {}",
    "profile {}",
    "diff {}",
    "show {}",
    "show {} --stage model",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files are that commands name."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "folder").mkdir()
    (folder / "good.tflite").write_bytes(GOOD)
    for name, content in MODELS.items():
        if content is not None:
            (folder / name).write_bytes(content)
    detector_model(folder / "detector.tflite")
    builder = ModelBuilder()
    x, y = builder.input((2, 2), name="x"), builder.tensor((2, 2), name="y")
    builder.op("No\x1bSuch[/]Operator", [x], [y], custom_options=b"")
    (folder / "custom.tflite").write_bytes(builder.finish([y]))
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "image.png")
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.png").write_text("I am no image")
    noise = np.random.default_rng(0).integers(256, size=(64, 64), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "whole.png")
    (folder / "cut.png").write_bytes((folder / "whole.png").read_bytes()[:2000])
    np.save(folder / "good.npy", np.zeros((1, 8, 8, 1), np.float32))
    np.save(folder / "shape.npy", np.zeros((2, 2), np.float32))
    np.save(folder / "type.npy", np.zeros((1, 8, 8, 1), np.int64))
    np.save(folder / "objects.npy", np.array([{}]), allow_pickle=True)
    np.savez(folder / "several.npy.npz", a=np.zeros(1))
    (folder / "several.npy.npz").rename(folder / "several.npy")
    (folder / "empty.npy").write_bytes(b"")
    (folder / "cut.npy").write_bytes((folder / "good.npy").read_bytes()[:200])
    huge = (folder / "good.npy").read_bytes().replace(b"(1, 8, 8, 1), }      ", b"(99999999, 99999, 1)}")
    (folder / "huge.npy").write_bytes(huge)
    (folder / "labels.txt").write_text("one\ntwo")
    (folder / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (folder / "text.bundle").write_text("I am no bundle")
    (folder / "empty.bundle").write_bytes(b"")
    with zipfile.ZipFile(folder / "other.bundle", "w") as archive:
        archive.writestr("v\x1b[31m/models/a", b"")
    return folder


COMMANDS = [verb.replace("{}", f"{{!{name}}}") for name in MODELS for verb in VERBS_WITH_MODEL]
COMMANDS += [
    "inspect {!good.tflite/model}",
    "inspect {!good.tflite} --device nonsense",
    "inspect {!good.tflite} --signature {none}",
    "run {!custom.tflite} {good.npy}",
    "diff {!custom.tflite}",
    "show {!custom.tflite}",
    "show {!custom.tflite} --stage plan",
    "run {good.tflite} {!missing.png}",
    "run {good.tflite} {!empty.png}",
    "run {good.tflite} {!text.png}",
    "run {good.tflite} {!cut.png}",
    "run {good.tflite} {!folder}",
    "run {good.tflite} {!missing.npy}",
    "run {good.tflite} {!empty.npy}",
    "run {good.tflite} {!cut.npy}",
    "run {good.tflite} {!huge.npy}",
    "run {good.tflite} {!shape.npy}",
    "run {good.tflite} {!type.npy}",
    "run {good.tflite} {!objects.npy}",
    "run {good.tflite} {!several.npy}",
    "run {!good.tflite} {good.npy} {good.npy}",
    "run {good.tflite} {!good.tflite}",
    "generate {!good.tflite} Hi",
    "run {good.tflite} {good.npy} --labels {!missing.txt}",
    "run {good.tflite} {good.npy} --labels {!labels.txt}",
    "run {good.tflite} {good.npy} --labels {!binary.txt}",
    "run {good.tflite} {good.npy} --labels {!folder}",
    "run {good.tflite} {good.npy} --output {!labels.txt}",
    "run {good.tflite} {image.png} --std 0",
    "run {!detector.tflite} {image.png}",
    "diff {good.tflite} {!shape.npy}",
    "diff {good.tflite} {!text.png}",
    "profile {good.tflite} --trace {!folder}",
    "profile {good.tflite} --trace {!missing/trace.json}",
    "cache ls --cache-dir {!missing}",
    "cache ls --cache-dir {!text.bundle}",
    "cache verify --cache-dir {!empty.bundle}",
    "cache ls --cache-dir {!other.bundle}",
    "cache evict --all --cache-dir {!missing}",
    "run {good.tflite} {good.npy} --cache require --cache-dir {!text.bundle}",
    "run {!good.tflite} {good.npy} --cache require --cache-dir {folder}",
    "run {!good.tflite} {good.npy} --device nonsense",
    "show {!good.tflite} --after nonsense",
    "show {good.tflite} --stage plan --after fuse",
    "benchmark {good.tflite} --csv --json",
    "cache evict",
    "cache evict --to-size much",
    "cache evict --token 12",
]
# In processes of their own.
SLOW = [
    "precompile-cache {!missing.tflite}",
    "precompile-cache {!a\x1b[31m[bold]\n.tflite}",
    "precompile-cache {good.tflite} --bundle {!missing/a.bundle}",
    "precompile-cache {good.tflite} --bundle {!folder}",
]
USAGE = [
    "nonsense",
    "run",
    "run {!good.tflite}",
    "inspect {!good.tflite} --nonsense",
    "inspect {!good.tflite} {!good.tflite}",
    "run {!good.tflite} {good.npy} --mean x",
    "run {!good.tflite} {good.npy} --top 0",
    "run {!good.tflite} {good.npy} --precision fp8",
    "benchmark {!good.tflite} --runs 0",
    "profile {!good.tflite} --runs many",
    "diff {!good.tflite} --seed -1",
    "show {!good.tflite} --stage nonsense",
    "precompile-cache",
    "precompile-cache {!good.tflite} --jobs 0",
    "cache nonsense",
    "cache evict --older-than -1",
    "devices nonsense",
    "demo --precision fp8",
]


def run(folder: Path, command: str) -> tuple[int, str, list[str]]:
    """The exit code of a command, what stands on stderr, and the files with an exclamation mark, as they are shown."""
    names = [word.strip("{!}") for word in command.split(" ") if word.startswith("{!")]
    words = (str(folder / word.strip("{!}")) if word.startswith("{") else word for word in command.split(" "))
    result = invoke(*words)
    assert isinstance(result.exception, SystemExit), result.exc_info
    return result.exit_code, result.stderr, [str(folder / printable(name)) for name in names]


@pytest.mark.device
@pytest.mark.usefixtures("fresh_warnings")  # one of them names the file
@pytest.mark.quick(when=lambda command: command not in SLOW)
@pytest.mark.parametrize("command", COMMANDS + SLOW, ids=printable)
def test_wrong_input_is_one_line_that_names_the_file(command: str, folder: Path) -> None:
    code, text, names = run(folder, command)
    *before, error = text.splitlines()
    assert code == 1
    assert error.startswith("error: ") and all(name in text for name in names) and "\x1b" not in text
    assert not before or before[0].startswith("warning: ")


@pytest.mark.parametrize("command", USAGE)
def test_a_wrong_command_is_one_line_that_says_where_help_is(command: str, folder: Path) -> None:
    code, text, _ = run(folder, command)
    assert code == 2
    assert text.startswith("error: ") and text.endswith("--help`\n") and text.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "telling"),
    [
        (tflgpu.BuildError("the device could not compile", "source", "line 1:\n\terror: no"), "line 1: error: no"),
        (tflgpu.UnsupportedError(["operator 0 A: no", "operator 1 B: no"]), "operator 0 A: no (and 1 more)"),
        (
            tflgpu.InternalError("lowering operator 3 ADD", "KeyError: 5"),
            "internal error while lowering operator 3 ADD",
        ),
        (tflgpu.DeviceError("failed:\nout of resources"), "failed:\\nout of resources"),
        (MemoryError("of 4 TiB"), "the memory is not enough: of 4 TiB"),
    ],
)
def test_every_error_is_one_line(error: Exception, telling: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(tflgpu, "inspect", fail)
    code, text, (name,) = run(folder, "inspect {!good.tflite}")
    assert code == 1
    assert text.startswith(f"error: {name}: ") and telling in text and text.count("\n") == 1
