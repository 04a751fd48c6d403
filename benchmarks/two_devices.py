"""Rows per second over one device and over two: through Predictor on Ray Data, and in plain processes, as rows of JSON.

    python -m benchmarks.two_devices MODEL [--batch 64] [--devices 0,1] [--precision fp16] [--rounds 3] [--out FILE]

A MODEL is a .tflite file with one image input, or a name of benchmarks.zoo. A row is an image of random bytes, of which
the device makes floats (``Interface.uint8_inputs``). Ray's tasks draw them in blocks of several batches, an actor for
each device reads them where they lie in the object store, and only the best class of each row comes back.

Rates are those of the steady state: rows that were finished between the first result of the last actor to give one and
the last result of the first to end, divided by that time. Each run is a pool of new actors, so ``start_s``, from the
first task to that first result, has the start of processes, of drivers and of Ray in it, which a longer run does not
repeat. ``processes`` are the bound without Ray: a process for each device calls Predictor in a loop on blocks that lie
in its own memory. Rounds of all kinds alternate; medians are compared.

With huge pages (``mount -o remount,huge=always /dev/shm``) processes map the object store sooner.

Without ``--devices`` Ray gives each actor a GPU. With it, the actors share out the devices of the list, so that the
script can be tried without a GPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyopencl as cl
import ray
from ray.data import ActorPoolStrategy, DataContext

import tflgpu
from benchmarks import zoo
from benchmarks.publish import publish
from tflgpu.batch import Predictor

# In a block of Ray's object store. Larger blocks are fewer tasks, for each of which Ray takes milliseconds.
BATCHES = 16

STORE = 24 << 30  # bytes of it: some 160 blocks of images at batch 64

# Images that one device is given in one run on Ray: seconds of work for the fastest.
ROWS = 1 << 17

# Blocks that are given to an actor at once. Ray Data looks ten times a second which are done; of its default, two, a
# fast device has none left by then.
BLOCKS_IN_FLIGHT = 8


@dataclass(frozen=True)
class Work:
    """The work of every worker. devices: to be shared out; None if Ray gives each actor a GPU."""

    model: bytes
    options: tflgpu.Options
    row: tuple[int, ...]
    block: int
    devices: tuple[int, ...] | None


class Classifier(Predictor):
    """The best class of each image, and which device found it when."""

    def __call__(self, batch: Any) -> dict[str, Any]:
        columns = super().__call__(batch)
        ids, (scores,) = columns.pop("id"), columns.values()
        device = np.full(len(ids), place(self.model.device))
        return {"id": ids, "class": scores.argmax(-1), "device": device, "finished": np.full(len(ids), time.time())}


def place(device: tflgpu.Device) -> int:
    """A number that tells a device from others in all processes: the index may not, if others are hidden."""
    try:
        return int(device.handle.pci_bus_id_nv) << 8 | int(device.handle.pci_slot_id_nv)
    except (AttributeError, cl.Error):
        return device.index


@cache
def images(count: int, row: tuple[int, ...]) -> np.ndarray:
    """Random bytes, which a process draws once: drawing them for each block takes longer than all else together."""
    return np.frombuffer(np.random.default_rng(0).bytes(count * prod(row)), np.uint8).reshape(count, *row)


def kept_images(count: int, row: tuple[int, ...]) -> np.ndarray:
    """In a task of Ray, for which this script is no module: a process keeps what it draws in one that it imports."""
    from benchmarks import two_devices

    return two_devices.images(count, row)


def on_ray(work: Work, count: int, rows: int) -> dict[str, object]:
    """One run over ``count`` devices."""
    begin = time.time()
    ids, places, finished = classify(work, count, rows)
    wall = time.time() - begin
    assert np.array_equal(np.sort(ids), np.arange(rows)), "rows were lost or came twice"
    ends = [finished[places == each] for each in np.unique(places)]
    if len(ends) != count:
        raise SystemExit(f"{rows} rows were over before {count} devices had started; give more --rows")
    first, last = max(each.min() for each in ends), min(each.max() for each in ends)
    steady = np.count_nonzero((finished > first) & (finished <= last))
    return {
        "rows_per_second": round(steady / (last - first)),
        "wall_s": round(wall, 2),
        "start_s": round(first - begin, 2),
        "rows_by_device": [len(each) for each in ends],
    }


def classify(work: Work, count: int, rows: int) -> tuple[np.ndarray, ...]:
    """The ids of all rows, the device of each and the time when it was finished, in the order in which they came."""
    (name,) = work.options.interface.uint8_inputs or {}
    dataset = (
        ray.data.range(rows, override_num_blocks=rows // work.block)
        .map_batches(lambda batch: batch | {name: kept_images(len(batch["id"]), work.row)}, batch_size=None)
        .map_batches(
            Classifier,
            fn_constructor_args=(work.model, work.options),
            fn_constructor_kwargs={"devices": work.devices and work.devices[:count]},
            batch_size=work.block,  # whole blocks, where they lie: Ray copies what it cuts out of one
            compute=ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=BLOCKS_IN_FLIGHT),
            num_cpus=0,
            num_gpus=0 if work.devices else 1,
        )
    )
    found = list(dataset.iter_batches(batch_size=None, batch_format="numpy"))
    return tuple(np.concatenate([each[k] for each in found]) for k in ("id", "device", "finished"))


def in_processes(work: Work, devices: tuple[int, ...], seconds: float) -> dict[str, object]:
    """A process for each device, without Ray, all at the same time."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(len(devices)), context.SimpleQueue()
    started = [context.Process(target=_process, args=(work, d, seconds, barrier, results.put)) for d in devices]
    for process in started:
        process.start()
    rates = [results.get() for _ in started]
    for process in started:
        process.join()
    return {"rows_per_second": round(sum(rates)), "rows_per_second_by_device": [round(rate) for rate in rates]}


def _process(work: Work, device: int, seconds: float, barrier: Barrier, report: Callable[[float], None]) -> None:
    predictor = Predictor(work.model, work.options, devices=[device])
    (name,) = work.options.interface.uint8_inputs or {}
    block = {name: images(work.block, work.row)}
    predictor(block)
    barrier.wait()
    rows, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        predictor(block)
        rows += work.block
    report(rows / elapsed)


def rows(
    work: Work, devices: tuple[int, ...], per_device: int, rounds: int, seconds: float
) -> Iterator[dict[str, Any]]:
    classify(work, len(devices), per_device)  # fills the cache, and touches the store's pages
    kinds: dict[tuple[str, int], Callable[[], dict[str, object]]] = {}
    for count in range(1, len(devices) + 1):
        kinds["ray", count] = lambda count=count: on_ray(work, count, per_device * count)  # type: ignore[misc]
        kinds["processes", count] = lambda count=count: in_processes(work, devices[:count], seconds)  # type: ignore[misc]
    found: dict[tuple[str, int], list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, once in kinds.items():
            found[kind].append(once())
    rates = {kind: median(each["rows_per_second"] for each in results) for kind, results in found.items()}
    for (engine, count), results in found.items():
        yield {
            "engine": engine,
            "devices": count,
            "rows_per_second": rates[engine, count],
            "of_one_device": round(rates[engine, count] / rates[engine, 1], 3),
            "rounds": results,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--devices", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--rows", type=int, default=ROWS, help="for each device in one run on Ray")
    parser.add_argument("--seconds", type=float, default=5, help="of one run in processes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", type=int, default=STORE, help="bytes of Ray's object store")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    model = zoo.load(arguments.model)
    (image,) = tflgpu.inspect(model).model.inputs
    options = tflgpu.Options(
        shapes=tflgpu.Shapes(batch=arguments.batch),
        precision=arguments.precision,
        interface=tflgpu.Interface(uint8_inputs={image.name: (127.5, 127.5)}),
    )
    block = arguments.batch * BATCHES
    per_device = max(arguments.rows // block, 1) * block
    work = Work(model, options, image.shape[1:], block, arguments.devices)
    devices = arguments.devices or tuple(d.index for d in tflgpu.devices() if d.type == "gpu")[:2]
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init("local", include_dashboard=False, object_store_memory=arguments.store, log_to_driver=False)
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 2 * block * prod(image.shape[1:])
    found = rows(work, devices, per_device, arguments.rounds, arguments.seconds)
    publish(
        found,
        next(d for d in tflgpu.devices() if d.index == devices[0]),
        arguments.out,
        packages=("pyopencl", "numpy", "ray", "pyarrow"),
        model=Path(arguments.model).stem,
        batch=arguments.batch,
        cpu_cores=os.cpu_count(),
        rows_for_each_device=per_device,
    )


if __name__ == "__main__":
    main()
