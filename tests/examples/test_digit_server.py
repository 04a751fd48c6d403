"""The asyncio server: each client gets its own answers, and the server outlives those that go away."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.examples.page import EXAMPLES

HELD_OUT = np.load(EXAMPLES / "digits" / "held_out.npz")
CLIENTS, EACH = 12, 5


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(EXAMPLES / "serving")
    import digit_server

    yield digit_server
    del sys.modules["digit_server"]


def test_every_client_gets_its_answers(example: Any) -> None:
    images = HELD_OUT["images"][: CLIENTS * EACH].astype(np.uint8)
    model = tflgpu.compile(EXAMPLES / "digits" / "digits.tflite")
    expected = [int(model.run(i[None, :, :, None].astype(np.float32) / 16)["probabilities"].argmax()) for i in images]

    async def serve() -> list[list[int]]:
        server = await asyncio.start_server(example.DigitServer(model, clients=8).serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            _, leaving = await asyncio.open_connection(host, port)
            leaving.write(bytes(10))  # a part of a request
            leaving.close()
            clients = (example.ask(host, port, images[first::CLIENTS]) for first in range(CLIENTS))
            return await asyncio.wait_for(asyncio.gather(*clients), 60)

    answers = asyncio.run(serve())
    assert answers == [expected[first::CLIENTS] for first in range(CLIENTS)]
