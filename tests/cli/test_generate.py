"""`tflgpu generate`, on bundles made here of a small language model and small tokenizers."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

import tflgpu
from tests.cli.command import as_json, fail, invoke
from tests.cli.documented import check
from tests.language.language_files import (
    bytes_tokenizer,
    compressed,
    described,
    pieces_tokenizer,
    section_file,
    task_described,
    task_file,
    weights_apart,
)
from tests.language.small_models import litert_answer
from tflgpu.language.containers import tokenizer_data
from tflgpu.language.tokenizer import Tokenizer, load_tokenizer

PROMPT = "how fast is it"

# An answer whose second token takes forever. It has to be seen before.
WAITING = """
import sys, time
from tflgpu.cli import app
from tflgpu.cli.commands import generate
from tflgpu.language import Statistics
class Answer:
    statistics = Statistics(5, 1, 1.0, 0.5, "left")
    tokens = [7]
    def __iter__(self):
        yield "begun"
        if len(sys.argv) > 1:
            print("waiting", file=sys.stderr, flush=True)
        time.sleep(600)
class Generator:
    def __init__(self, *_, **__): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def stream(self, *_, **__): return Answer()
generate.Generator = Generator
app(["generate", "model.tflite", "prompt", *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def model(shared: Path) -> bytes:
    """A decoder of two layers, 150 tokens and a cache of 100 places."""
    return (shared / "language" / "decoder_float.tflite").read_bytes()


def bundle(form: str, folder: Path, model: bytes) -> tuple[Path, Tokenizer]:
    """A file with the model, which names token 0 as the start and token 1 as the end.

    form: "weights" is a .litertlm file with them in a section of their own.
    """
    if form in ("litertlm", "weights"):
        metadata = described("start_token { token_ids { ids: 0 } } stop_tokens { token_ids { ids: 1 } }")
        tokenizer = bytes_tokenizer()
        parts = [(5, metadata, ""), (6, compressed(tokenizer), "")]
        pair = weights_apart(model) if form == "weights" else (model,)
        parts += [(kind, data, "tf_lite_prefill_decode") for kind, data in zip((3, 7), pair, strict=False)]
        return section_file(folder / "model.litertlm", parts), load_tokenizer(tokenizer_data(tokenizer))
    tokenizer = pieces_tokenizer()
    metadata = task_described('start_token_id: 0 stop_tokens: "</s>"')
    return task_file(folder / "model.task", model, tokenizer, metadata), load_tokenizer(tokenizer_data(tokenizer))


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
@pytest.mark.parametrize("form", ["litertlm", "weights", "task"])
def test_the_answer_is_that_of_litert(device: tflgpu.Device, tmp_path: Path, model: bytes, form: str) -> None:
    path, tokenizer = bundle(form, tmp_path, model)
    prompt = [0, *tokenizer.encode(PROMPT)]
    expected = litert_answer(model, prompt, 16)
    stopped = tokenizer.find("</s>")
    if stopped in expected:
        expected = expected[: expected.index(stopped) + 1]
    options = ("--device", device.index, "--precision", "fp32", "--max-tokens", 16)
    found = as_json("generate", path, PROMPT, *options)
    check("generate", [found])
    assert found["tokens"] == expected
    assert found["prompt_tokens"] == len(prompt)
    told = [token for token in expected if token != stopped]
    assert found["text"] == tokenizer.decode([*prompt, *told])[len(tokenizer.decode(prompt)) :]
    streamed = invoke("generate", path, PROMPT, *options)
    assert streamed.stdout == f"{found['text']}\n"
    assert f"{len(prompt)} tokens of prompt" in streamed.stderr and "a second)" in streamed.stderr


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_a_prompt_from_a_pipe_and_drawn_tokens(device: tflgpu.Device, tmp_path: Path, model: bytes) -> None:
    (tmp_path / "model.tflite").write_bytes(model)
    (tmp_path / "tokenizer.json").write_bytes(bytes_tokenizer())
    command = [sys.executable, "-m", "tflgpu", "-q", "generate", "model.tflite", "-", "--tokenizer", "tokenizer.json"]
    drawn = ["--temperature", "2", "--top-k", "9", "--seed", "5", "--max-tokens", "8", "--device", str(device.index)]
    answers = [
        subprocess.run(
            [*command, *drawn, "--json"], input=PROMPT, text=True, cwd=tmp_path, capture_output=True, check=True
        )
        for _ in range(2)
    ]
    first, second = (json.loads(answer.stdout) for answer in answers)
    assert first["tokens"] == second["tokens"] and len(first["tokens"]) == 8
    assert answers[0].stderr == ""


def test_wrong_commands(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\x18\0\0\0TFL3")
    assert "has no tokenizer; give one" in fail("generate", path, PROMPT)
    (tmp_path / "tokenizer").write_bytes(bytes_tokenizer())
    assert "the model is damaged" in fail("generate", path, PROMPT, "--tokenizer", tmp_path / "tokenizer")
    assert "need a temperature above 0" in fail("generate", path, PROMPT, "--top-k", 3)
    path.write_bytes(b"LITERTLM")
    assert fail("generate", path, PROMPT) == f"{path}: not a .litertlm file: it does not begin with LITERTLM"


@pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals are POSIX's here")
@pytest.mark.parametrize("where", ["pipe", "terminal"])
def test_ctrl_c_leaves_what_there_is(where: str) -> None:
    reader, writer = os.pipe() if where == "pipe" else pty.openpty()
    command = [sys.executable, "-c", WAITING]
    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            os.close(writer)
            text = b""
            while b"begun" not in text:
                text += os.read(reader, 100)
            process.send_signal(signal.SIGINT)
            _, messages = process.communicate(timeout=60)
        finally:
            process.kill()
            os.close(reader)
    assert process.returncode == -signal.SIGINT
    assert messages == "5 tokens of prompt (4 a second), 1 of answer (2.0 a second); it was interrupted\ninterrupted\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's here")
def test_ctrl_c_leaves_what_there_is_as_json() -> None:
    command = [sys.executable, "-c", WAITING, "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        try:
            assert process.stderr is not None and process.stderr.readline() == "waiting\n"
            process.send_signal(signal.SIGINT)
            text, messages = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, messages) == (-signal.SIGINT, "interrupted\n")
    answer = json.loads(text)
    assert (answer["text"], answer["tokens"], answer["end"]) == ("begun", [7], "left")


def test_a_prompt_that_is_no_text(model: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(model)
    (tmp_path / "tokenizer").write_bytes(bytes_tokenizer())
    words = ("generate", tmp_path / "model.tflite", "how \udcff fast", "--tokenizer", tmp_path / "tokenizer")
    assert "the prompt is no text in UTF-8, at character 4" in fail(*words)


def test_a_chat_and_a_server(device: tflgpu.Device, tmp_path: Path, model: bytes) -> None:
    """The conversation is that of two prompts; a server answers the first one until it is told to end."""
    path, _ = bundle("litertlm", tmp_path, model)
    words = [sys.executable, "-m", "tflgpu", "-q"]
    options = [path, "--device", str(device.index), "--precision", "fp32"]
    chat = [*words, "chat", *options, "--max-tokens", "6"]
    talk = subprocess.run(chat, input=f"{PROMPT}\n\nand now\n", text=True, capture_output=True, check=True)
    first = as_json("generate", path, PROMPT, "--device", device.index, "--precision", "fp32", "--max-tokens", 6)
    assert talk.stdout.startswith(f"{first['text']}\n") and len(talk.stdout) > len(first["text"]) + 2
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [*words, "serve", *options, "--port", str(port)], stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            request = {"prompt": PROMPT, "max_tokens": 6}
            for _ in range(600):
                try:
                    found = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=request, timeout=60).json()
                    break
                except httpx.ConnectError:
                    time.sleep(0.1)
            server.send_signal(signal.SIGINT)
            _, messages = server.communicate(timeout=60)
        finally:
            server.kill()
    assert found["choices"][0]["text"] == first["text"]
    assert messages == "" or messages == "interrupted\n"


def test_characters_that_stdout_does_not_have() -> None:
    program = "from tflgpu.cli.commands.generate import write_piece; write_piece('caf\\u00e9 \\u20ac')"
    for encoding, expected in {"ascii": b"caf\\xe9 \\u20ac", "latin-1": b"caf\xe9 \\u20ac"}.items():
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        assert run.stdout == expected
