"""The web service: every request gets its own answer, however many come at once."""

from __future__ import annotations

import asyncio
import io
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFile

from tests.examples.page import EXAMPLES, command_of, environment
from tests.support import litert

if TYPE_CHECKING:
    from fastapi import FastAPI

CLIENTS = 50


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's modules, which import each other as scripts of one folder do."""
    monkeypatch.syspath_prepend(EXAMPLES / "serving")
    import micro_batching
    import pictures
    import service

    yield service
    for module in (service, pictures, micro_batching):
        del sys.modules[module.__name__]


def crops(path: Path) -> list[bytes]:
    """Parts of a picture, as many as there are clients, as PNG files of the model's size."""
    with Image.open(path) as picture:
        places = [(7 * n, 2 * n, 7 * n + 150, 2 * n + 150) for n in range(CLIENTS)]
        files = [io.BytesIO() for _ in places]
        for place, file in zip(places, files, strict=True):
            picture.convert("RGB").crop(place).resize((224, 224)).save(file, "png")
    return [file.getvalue() for file in files]


def expected(model: bytes, files: list[bytes]) -> list[NDArray[Any]]:
    pictures = [np.asarray(Image.open(io.BytesIO(file)), np.float32)[None] / np.float32(127.5) - 1 for file in files]
    return [next(iter(litert.run(model, picture).values()))[0] for picture in pictures]


async def ask_all(app: FastAPI, bodies: list[bytes]) -> list[httpx.Response]:
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        return await asyncio.gather(*(client.post("/classify", content=body) for body in bodies))


@pytest.mark.full("it compiles a model and serves dozens of pictures")
def test_concurrent_requests_get_their_own_answers(serving: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = folder / "models" / "mobilenet_v1_0.25_224_1_default_1.tflite"
    sizes: list[int] = []
    run_batch = serving.MicroBatcher.run_batch

    def counted(self: Any, items: tuple[Any, ...]) -> Any:
        sizes.append(len(items))
        return run_batch(self, items)

    monkeypatch.setattr(serving.MicroBatcher, "run_batch", counted)
    labels = [str(number) for number in range(1001)]
    files = crops(folder / "images" / "cat.png")
    app = serving.create_app(model, labels)

    bodies = [*files, b"no picture"]
    *answers, refused = asyncio.run(asyncio.wait_for(ask_all(app, bodies), 60))
    scores = expected(model.read_bytes(), files)
    assert len({float(each.max()) for each in scores}) == CLIENTS  # so that a mix-up would show
    for answer, probabilities in zip(answers, scores, strict=True):
        got = answer.json()
        assert got["probability"] == pytest.approx(float(probabilities.max()), abs=1e-3)
        assert got["probability"] == pytest.approx(float(probabilities[int(got["label"])]), abs=1e-3)
    assert refused.status_code == 415
    assert sum(sizes) == CLIENTS and max(sizes) <= 16 and len(sizes) < CLIENTS / 2


def test_a_small_file_of_a_huge_picture_is_refused_before_it_is_decoded(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.BytesIO()
    Image.new("1", (1 << 13, 1 << 12)).save(file, "png")
    assert len(file.getvalue()) < 20_000
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda _: pytest.fail("it is decoded"))
    with pytest.raises(ValueError, match="8192 x 4096 pixels"):
        serving.decode(file.getvalue(), (224, 224))


def test_a_body_is_refused_as_soon_as_it_is_too_long(serving: Any) -> None:
    taken: list[int] = []

    class Endless:
        async def stream(self) -> AsyncIterator[bytes]:
            while True:
                taken.append(1 << 20)
                yield bytes(taken[-1])

    pictures = sys.modules[serving.decode.__module__]
    with pytest.raises(serving.HTTPException, match="413"):
        asyncio.run(serving.body_of(Endless()))
    assert sum(taken) <= pictures.MOST_BYTES + (1 << 20)


def test_a_failing_batch_harms_no_other(serving: Any) -> None:
    class Model:
        """Doubles its rows; a negative number is too much for it."""

        inputs = (type("Info", (), {"name": "x"}),)

        def pinned_array(self, name: str) -> NDArray[Any]:
            return np.zeros((2, 1))

        def run(self, batch: NDArray[Any]) -> dict[str, NDArray[Any]]:
            if (batch < 0).any():
                raise ValueError("negative")
            return {"y": batch * 2}

    async def session() -> None:
        batcher = serving.MicroBatcher(Model(), window=0.01)
        task = asyncio.create_task(batcher.serve())
        given_up = asyncio.create_task(batcher.run(np.array([5])))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(ValueError, match="negative"):
            await batcher.run(np.array([-1]))
        batcher.batch[:] = 0
        first, second, third = await asyncio.gather(*(batcher.run(np.array([n])) for n in (1, 2, 3)))
        assert (first[0], second[0], third[0]) == (2, 4, 6)
        task.cancel()

    asyncio.run(asyncio.wait_for(session(), 30))


@pytest.mark.full("a process that waits for another one")
def test_the_service_answers_over_http(folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*command_of("serving/service.py"), "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr
        try:
            lines = []
            while not (lines and "Uvicorn running" in lines[-1]):
                lines.append(service.stderr.readline())
                assert lines[-1], "".join(lines)
            picture = (folder / "images" / "cat.png").read_bytes()
            answer = httpx.post(f"http://127.0.0.1:{port}/classify", content=picture, timeout=30)
        finally:
            service.send_signal(signal.SIGINT)
        rest = service.stderr.read()
    assert answer.json()["label"] == "Egyptian cat"
    assert "Application shutdown complete." in rest and service.returncode in (0, -signal.SIGINT)
