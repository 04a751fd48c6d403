"""Requests per second of the picture services of examples/serving under many clients: in one process, and on Ray Serve.

    python -m benchmarks.serving FOLDER [--ways plain,ray,ray-haproxy] [--rounds 2] [--kill] [--out FILE]

FOLDER is that of ``examples/download.py``. Every client posts one JPEG file after another on a connection of its own.
All answers are compared with those that the same pictures got alone. Rounds of all ways alternate, each with services
that start anew from the cache; medians are compared. The clients are one process of asyncio without a library of HTTP,
which takes a small part of a core.

With ``--kill`` a replica of the model is killed in the midst of each run on Ray.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from PIL import Image

import tflgpu
from benchmarks.publish import publish

EXAMPLES = Path(__file__).parents[1] / "examples" / "serving"
MODEL = "mobilenet_v1_0.25_224_1_default_1.tflite"

PICTURES = 32  # different ones

SETTLING = 4  # seconds, in which proxies learn of the replicas

REPLICA = b"ray::ServeReplica:default:model"

TOLERANCE = 2e-3  # of a probability; a batch may be computed in half precision


@dataclass(frozen=True)
class Way:
    """How pictures are served: a script, and what its environment has more."""

    script: str
    environment: tuple[tuple[str, str], ...] = ()


WAYS = {
    "plain": Way("service.py"),
    "ray": Way("ray_service.py"),
    "ray-haproxy": Way("ray_service.py", (("RAY_SERVE_ENABLE_HA_PROXY", "1"),)),
    "ray-haproxy-throughput": Way(
        "ray_service.py", (("RAY_SERVE_ENABLE_HA_PROXY", "1"), ("RAY_SERVE_THROUGHPUT_OPTIMIZED", "1"))
    ),
}


def pictures(folder: Path) -> list[bytes]:
    """Parts of a picture as JPEG files of the model's size."""
    files = []
    with Image.open(folder / "images" / "cat.png") as whole:
        for n in range(PICTURES):
            part = whole.convert("RGB").crop((7 * n, 2 * n, 7 * n + 150, 2 * n + 150)).resize((224, 224))
            part.save(file := io.BytesIO(), "jpeg", quality=90)
            files.append(file.getvalue())
    return files


class Client:
    """A connection that posts pictures."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def post(self, body: bytes) -> tuple[int, Any]:
        """The status and the JSON of the answer."""
        self.writer.write(
            b"POST /classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        answer = await self.reader.readexactly(length)
        status = int(head.split(b" ", 2)[1])
        return status, json.loads(answer) if status == 200 else answer


@dataclass
class Load:
    """The load that clients saw. seconds: of each request. took: seconds of all together."""

    seconds: list[float]
    took: float = 0
    wrong: int = 0
    failed: int = 0


async def ask_until(end: float, port: int, files: list[bytes], expected: list[Any], number: int, load: Load) -> None:
    async with Client(port) as client:
        while (begin := time.perf_counter()) < end:
            status, answer = await client.post(files[number % PICTURES])
            right = expected[number % PICTURES]
            load.seconds.append(time.perf_counter() - begin)
            load.failed += status != 200
            load.wrong += status == 200 and not same(answer, right)
            number += 1


def same(answer: Any, right: Any) -> bool:
    near = abs(answer["probability"] - right["probability"]) < TOLERANCE
    return bool(near and answer["label"] == right["label"])


async def alone(port: int, files: list[bytes]) -> list[Any]:
    async with Client(port) as client:
        return [(await client.post(body))[1] for body in files]


async def loaded(port: int, files: list[bytes], expected: list[Any], clients: int, seconds: float) -> Load:
    load, begin = Load([]), time.perf_counter()
    end = begin + seconds
    await asyncio.gather(*(ask_until(end, port, files, expected, number, load) for number in range(clients)))
    load.took = time.perf_counter() - begin
    return load


@contextmanager
def service(way: Way, folder: Path, more: Sequence[str]) -> Iterator[tuple[int, int, float]]:
    """The port of the service, its process, and the seconds until it answered."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    model, labels = folder / "models" / MODEL, folder / "labels" / "imagenet_labels.txt"
    command = [sys.executable, *map(str, (EXAMPLES / way.script, model, labels)), "--port", str(port), *more]
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"} | dict(way.environment)
    begin = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            while not answers(port, pictures(folder)[0]):
                if process.poll() is not None:
                    raise SystemExit(f"{way.script} ended")
                time.sleep(0.1)
            started = time.perf_counter() - begin
            time.sleep(SETTLING)
            yield port, process.pid, started
        finally:
            end(process)


def answers(port: int, body: bytes) -> bool:
    try:
        return isinstance(asyncio.run(alone(port, [body]))[0], dict)
    except (OSError, asyncio.IncompleteReadError, ValueError):  # ValueError: of an answer in chunks, before it is ready
        return False


def end(process: subprocess.Popen[bytes]) -> None:
    """End a service and what it started: workers of Ray have sessions of their own."""
    started = descendants(process.pid)
    process.terminate()
    try:
        process.wait(30)
    finally:
        for each in (process.pid, *started):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


def descendants(of: int) -> dict[int, bytes]:
    """Processes -> their command lines."""
    parents, commands = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(folder.name)] = (folder / "cmdline").read_bytes()

    def descends(process: int) -> bool:
        parent = parents.get(process, 0)
        return parent == of or (parent in parents and descends(parent))

    return {process: command for process, command in commands.items() if descends(process)}


def replicas(of: int) -> list[int]:
    """The processes of the model's replicas that a service has started."""
    return [process for process, command in descendants(of).items() if command.startswith(REPLICA)]


async def kill_one(of: int, after: float) -> None:
    await asyncio.sleep(after)
    os.kill(replicas(of)[0], signal.SIGKILL)


async def run(port: int, files: list[bytes], arguments: argparse.Namespace, dying: int | None) -> Load:
    """One load, after a short one in which replicas are added. dying: the service of which a replica is killed."""
    expected = await alone(port, files)
    await loaded(port, files, expected, arguments.clients, arguments.warm)
    death = asyncio.create_task(kill_one(dying, arguments.seconds / 2)) if dying else None
    load = await loaded(port, files, expected, arguments.clients, arguments.seconds)
    if death:
        await death
    return load


def once(way: Way, arguments: argparse.Namespace) -> dict[str, Any]:
    on_ray = way.script != "service.py"
    more = ["--replicas", str(arguments.replicas), "--gpus", str(arguments.gpus)] if on_ray else []
    with service(way, arguments.folder, more) as (port, process, started):
        dying = process if arguments.kill and on_ray else None
        load = asyncio.run(run(port, pictures(arguments.folder), arguments, dying))
        count = len(replicas(process))
    return {
        "requests_per_second": round(len(load.seconds) / load.took, 1),
        "requests": len(load.seconds),
        "wrong": load.wrong,
        "failed": load.failed,
        "median_ms": round(1e3 * median(load.seconds), 1),
        "p99_ms": round(1e3 * quantiles(load.seconds, n=100)[-1], 1),
        "start_s": round(started, 1),
        "replicas": count,
    }


def rows(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.ways.split(",")}
    for _ in range(arguments.rounds):
        for name, rounds in found.items():
            rounds.append(once(WAYS[name], arguments))
    for name, rounds in found.items():
        yield {"way": name} | {
            "requests_per_second": median(each["requests_per_second"] for each in rounds),
            "rounds": rounds,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ways", default="plain,ray,ray-haproxy", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=15, help="of a load")
    parser.add_argument("--warm", type=float, default=5, help="seconds of load before it")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=4, help="the most on Ray")
    parser.add_argument("--gpus", type=float, default=0, help="of each replica on Ray")
    parser.add_argument("--kill", action="store_true", help="a replica of the model in the midst of each load on Ray")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that services end, too
    publish(
        rows(arguments),
        tflgpu.devices()[0],
        arguments.out,
        packages=("pyopencl", "numpy", "ray", "fastapi", "uvicorn"),
        model=MODEL,
        clients=arguments.clients,
        cpu_cores=os.cpu_count(),
    )


if __name__ == "__main__":
    main()
