"""The container image: `ship.sh` and the Dockerfile, with a folder in place of each image and no Docker.

What stands in for Docker copies what the Dockerfile copies, and runs what it would run. The rest of the Dockerfile,
which installs packages, is not run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.page import EXAMPLES, command_of, environment

# Images are folders below $IMAGES. `docker build` knows COPY, FROM, ARG and ENV; `docker run` a volume and a command.
DOCKER = """#!{python}
import json, os, subprocess, sys
from argparse import ArgumentParser
from pathlib import Path

images = Path(os.environ["IMAGES"])
parser = ArgumentParser()
verbs = parser.add_subparsers(dest="verb", required=True)
build = verbs.add_parser("build")
build.add_argument("--target")
build.add_argument("--build-arg", default="")
build.add_argument("--tag", required=True)
build.add_argument("context", type=Path)
run = verbs.add_parser("run")
run.add_argument("--rm", action="store_true")
run.add_argument("--gpus")
run.add_argument("--volume", required=True)
run.add_argument("image")
run.add_argument("command", nargs="...")
given = parser.parse_args()

if given.verb == "build":
    image = images / given.tag
    image.mkdir(parents=True)
    settings, stage = {{}}, None
    for line in (given.context / "Dockerfile").read_text().splitlines():
        match line.split():
            case ["FROM", *_] if given.target and stage == given.target:
                break
            case ["FROM", *_, stage]:
                pass
            case ["COPY", *names, _]:
                for name in (name for name in names if not name.startswith("--")):
                    (file,) = given.context.glob(name)
                    (image / file.name).write_bytes(file.read_bytes())
            case ["ENTRYPOINT", *_]:
                settings["entry"] = json.loads(line.removeprefix("ENTRYPOINT"))
    settings["environment"] = dict([given.build_arg.split("=")] if given.build_arg else [])
    (image / "settings.json").write_text(json.dumps(settings))
else:
    host, place = given.volume.split(":")
    command = [word.replace(place, host) for word in given.command]
    sys.exit(subprocess.run(command, cwd=images / given.image).returncode)
"""


@pytest.mark.full("a large model, and a wheel")
def test_an_image_starts_from_its_bundle(folder: Path) -> None:
    programs, images = folder / "programs", folder / "built"
    programs.mkdir()
    (programs / "docker").write_text(DOCKER.format(python=sys.executable))
    (programs / "docker").chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {**environment(), "PATH": path, "IMAGES": str(images)}

    done = subprocess.run(
        [*command_of("container/"), "--gpus", "all"],
        cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    built = re.search(r"built classifier with bundle ([0-9a-f]{64})$", done.stdout)
    assert built, done.stdout

    image = images / "classifier"
    settings = json.loads((image / "settings.json").read_text())
    assert settings["environment"] == {"BUNDLE_DIGEST": built[1]}
    assert {"app.py", "labels.txt", "model.tflite", "models.bundle"} <= {file.name for file in image.iterdir()}
    assert not (images / "classifier-runtime" / "models.bundle").exists()

    cache = folder / "cache"  # that of another host: empty, and stays so
    variables |= settings["environment"] | {"TFLGPU_CACHE_DIR": str(cache)}
    assert start(image, settings["entry"], variables).startswith("Egyptian cat (ready in ")
    assert not cache.exists()

    bundle = image / "models.bundle"
    damaged = bytearray(bundle.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    bundle.write_bytes(damaged)
    assert "is refused: its SHA-256 is" in start(image, settings["entry"], variables, exit_code=1)
    bundle.unlink()
    assert "the cache has no artifact" in start(image, settings["entry"], variables, exit_code=1)


def start(image: Path, entry: list[str], variables: dict[str, str], exit_code: int = 0) -> str:
    """The line that a container of the image prints for the picture of a cat."""
    program = shutil.which(entry[0], path=variables["PATH"])
    assert program
    with (image.parents[1] / "images" / "cat.png").open("rb") as picture:
        done = subprocess.run(
            [program, *entry[1:]], cwd=image, env=variables, stdin=picture, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done.stderr if exit_code else done.stdout


def test_the_image_has_what_the_application_reads() -> None:
    dockerfile = (EXAMPLES / "container" / "Dockerfile").read_text()
    copied = set(" ".join(re.findall(r"^COPY (.+) \./$", dockerfile, re.MULTILINE)).split())
    application = (EXAMPLES / "container" / "app.py").read_text()
    assert set(re.findall(r'FOLDER / "(.+?)"', application)) | {"app.py", "--chmod=444"} == copied
