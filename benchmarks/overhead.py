"""The overhead of ``CompiledModel.run``: its time minus that of the same transfers and launch by hand.

    python -m benchmarks.overhead [--device D] [--runs 4000] [--out FILE]

The model is ABS of four floats, so that transfers and launch take nearly all the time. By hand means a write, a launch
and a read with pyopencl, with all else prepared. LiteRT's peer is ``set_tensor``, ``invoke`` and ``get_tensor``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyopencl as cl
from ai_edge_litert.interpreter import Interpreter

import tflgpu
from benchmarks.publish import publish
from tflgpu.artifact.artifact import DevicePartition
from tflgpu.artifact.executable import DeviceBuffer
from tflgpu.cli.measurement import seconds_of
from tflgpu.compiler import compile_model
from tflgpu.model.writer import ModelBuilder
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import compile_program
from tflgpu.runtime.opencl.session import Session, open_session

SHAPE = (1, 4)


def tiny() -> bytes:
    builder = ModelBuilder()
    x, y = builder.input(SHAPE), builder.tensor(SHAPE)
    builder.op("ABS", [x], [y])
    return builder.finish([y])


def by_hand(partition: DevicePartition, session: Session, x: np.ndarray) -> Callable[[], np.ndarray]:
    """The least calls of pyopencl for one run of a partition with one launch."""
    executable, queue = partition.executable, session.queue
    buffers = [_buffer(b, session) for b in executable.buffers]
    (launch,), (source,), (target,) = executable.launches, executable.inputs, executable.outputs
    kernel = cl.Kernel(compile_program(session.context, partition.source), launch.function)
    kernel.set_args(*(a for s in launch.arguments for a in (buffers[s.buffer], np.uint64(s.offset))))
    size, local = (launch.groups * launch.local_size,), (launch.local_size,)

    def run() -> np.ndarray:
        # The event has a name, because deleting it would wait for the write.
        write = cl.enqueue_copy(queue, buffers[source.buffer], x, dst_offset=source.offset, is_blocking=False)
        cl.enqueue_nd_range_kernel(queue, kernel, size, local)
        result = np.empty(SHAPE, np.float32)
        cl.enqueue_copy(queue, result, buffers[target.buffer], src_offset=target.offset)
        del write
        return result

    return run


def _buffer(wanted: DeviceBuffer, session: Session) -> cl.Buffer:
    data = np.zeros(wanted.bytes, np.uint8) if wanted.data is None else wanted.data
    return cl.Buffer(session.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=data)


def rows(device: tflgpu.Device, runs: int) -> Iterator[dict[str, object]]:
    data, x = tiny(), np.array([[1, -2, 3, -4]], np.float32)
    options = tflgpu.Options(
        device=device.index, precision="fp32", execution=tflgpu.Execution(executor="launch"), cache="off"
    )
    session = open_session(device)
    # One queue for both: GPUs are slow to change contexts.
    model = tflgpu.compile(data, options, queue=session.queue)
    (artifact,) = compile_model(data, options, device.target(options))
    (partition,) = artifact.partitions
    assert isinstance(partition, DevicePartition)
    bare = by_hand(partition, session, x)
    interpreter = Interpreter(model_content=data)
    interpreter.allocate_tensors()
    source, target = (d[0]["index"] for d in (interpreter.get_input_details(), interpreter.get_output_details()))

    def litert() -> np.ndarray:
        interpreter.set_tensor(source, x)
        interpreter.invoke()
        found: np.ndarray = interpreter.get_tensor(target)
        return found

    calls: dict[str, Callable[[], object]] = {"run": partial(model.run, x), "by hand": bare, "litert": litert}
    for result in (*model.run(x).values(), bare(), litert()):
        np.testing.assert_array_equal(result, np.abs(x))
    # The first quarter warms up.
    found = [[seconds_of(call) for call in calls.values()] for _ in range(runs)][runs // 4 :]
    times = dict(zip(calls, (1e6 * median(column) for column in zip(*found, strict=True)), strict=True))
    overhead = times["run"] - times["by hand"]
    yield {
        "metric": "overhead",
        "run_us": round(times["run"], 2),
        "by_hand_us": round(times["by hand"], 2),
        "tflgpu_us": round(overhead, 2),
        "peer": "litert-set-invoke-get",
        "peer_us": round(times["litert"], 2),
        "ratio": round(overhead / times["litert"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    publish(rows(device, arguments.runs), device, arguments.out)


if __name__ == "__main__":
    main()
