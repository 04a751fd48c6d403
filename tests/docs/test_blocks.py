"""Every block of code in the documentation runs, page by page, and prints what the page says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import agrees, blocks, commands_without_a_language
from tests.language.language_files import bytes_tokenizer, compressed, section_file

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "cache_format/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"
)
WITH_CODE = [page for page in PAGES if any(not block.not_run for block in blocks(page))]
MOST_NOT_RUN = 14

# Files that pages may name: real models, images and labels, by their names in the folder of a reader.
FILES = {
    "model.tflite": "models/mobilenet_v1_0.25_224_1_default_1.tflite",
    "quantized.tflite": "models/mobilenet_v1_0.25_224_quant.tflite",
    "detector.tflite": "models/coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite",
    "decoder.tflite": "language/decoder_float.tflite",
    "models/keywords.tflite": "models/kws_ref_model_float32.tflite",
    "cat.png": "images/cat.png",
    "images/bird.png": "images/bird.png",
    "images/cat.png": "images/cat.png",
    "imagenet_labels.txt": "labels/imagenet_labels.txt",
    "coco_labels.txt": "labels/coco_labels.txt",
}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(shared: Path, tmp_path: Path) -> Path:
    """A reader's folder: the examples, and some files of their own, which are copies that a page may write to."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for file, source in FILES.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copyfile(shared / source, tmp_path / file)
    decoder = (tmp_path / "decoder.tflite").read_bytes()
    sections = [(6, compressed(bytes_tokenizer()), ""), (3, decoder, "tf_lite_prefill_decode")]
    section_file(tmp_path / "model.litertlm", sections)
    return tmp_path


@pytest.mark.full(why="a page compiles models and starts a process for each command")
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_blocks_run(page: Path, folder: Path) -> None:
    tools = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": tools, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    command = [sys.executable, "-m", "tests.docs.run_page", str(page)]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


def test_few_blocks_are_not_run() -> None:
    left_out = [f"{name(page)}: {block.not_run}" for page in PAGES for block in blocks(page) if block.not_run]
    assert len(left_out) <= MOST_NOT_RUN, left_out


@pytest.mark.quick(when=lambda page: True)  # each takes no time
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_say_that_they_are_commands(page: Path) -> None:
    assert commands_without_a_language(page) == [], "write ```sh"


def test_what_agrees_with_a_page() -> None:
    run = "on Some CPU, 12 kernels\n\nfirst   3.1 ms\nlast\n"
    for device in ("Some CPU", "Intel(R) Xeon(R) Processor", "AMD EPYC"):
        assert agrees(f"on {device}, 12 kernels\n...\nlast\n", run, "Some CPU")
    assert agrees("...\nfirst 4.5 ms\nlast\n", run, "Some CPU")
    assert not agrees("...\nfirst 4.5 ms\n", run, "Some CPU")
    assert agrees("on Some CPU, 13 kernels\n...\nlast\n", run, "Some CPU"), "it depends on the width of registers"
    assert not agrees("on Some CPU, 12 layers\n...\nlast\n", run, "Some CPU")
