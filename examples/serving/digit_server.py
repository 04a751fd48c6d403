"""An asyncio server without a web framework: clients send digits as bytes, and read which ones they are.

    python examples/serving/digit_server.py
    python examples/serving/digit_server.py --try 20

A request is 64 bytes, the pixels of a digit from 0 to 16; the answer is one byte, the digit. One coroutine serves each
client, and `tflgpu.Pool` runs all of their inferences: some are in flight while others are read and written.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import tflgpu

DIGITS = Path(__file__).parents[1] / "digits"
BYTES = 64


class DigitServer:
    """Answers clients until it is closed. model: of examples/digits."""

    def __init__(self, model: tflgpu.CompiledModel, clients: int = 64) -> None:
        self.pool = tflgpu.Pool(model)
        self.places = asyncio.Semaphore(clients)  # further clients wait; each place has one request at a time

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client until it goes away."""
        try:
            async with self.places:
                while pixels := await reader.read(BYTES):
                    if len(pixels) < BYTES:
                        pixels += await reader.readexactly(BYTES - len(pixels))
                    writer.write(bytes([await self.digit(pixels)]))
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # a client that went away in the middle of a request
        finally:
            writer.close()

    async def digit(self, pixels: bytes) -> int:
        image = np.frombuffer(pixels, np.uint8).astype(np.float32).reshape(1, 8, 8, 1) / 16
        (scores,) = (await self.pool.run(image)).values()
        return int(scores.argmax())


async def ask(host: str, port: int, images: NDArray[np.uint8]) -> list[int]:
    """One client: the answers for some images, one after another."""
    reader, writer = await asyncio.open_connection(host, port)
    answers = []
    for image in images:
        writer.write(image.tobytes())
        answers += await reader.readexactly(1)
    writer.close()
    await writer.wait_closed()
    return answers


async def serve(port: int, tried: int) -> None:
    with tflgpu.compile(DIGITS / "digits.tflite") as model:
        server = await asyncio.start_server(DigitServer(model).serve, "127.0.0.1", port)
        host, port = server.sockets[0].getsockname()[:2]
        print(f"serving on {host}:{port}")
        async with server:
            if not tried:
                await server.serve_forever()
            held_out = np.load(DIGITS / "held_out.npz")
            images, labels = held_out["images"][:tried].astype(np.uint8), held_out["labels"][:tried]
            answers = await asyncio.gather(*(ask(host, port, images[number::4]) for number in range(4)))
        right = sum(int((np.array(given) == labels[number::4]).sum()) for number, given in enumerate(answers))
        print(f"{right} of {len(images)} digits are read right")


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the reading of digits.")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--try", type=int, default=0, dest="tried", help="send so many digits by four clients, and end")
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.port, arguments.tried))


if __name__ == "__main__":
    main()
