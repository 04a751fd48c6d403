"""LiteRT's GPU path (WebGPU, on Vulkan except on a Mac): write, run and read, from host arrays to host arrays."""

from __future__ import annotations

import numpy as np

from benchmarks.contest.case import Case
from benchmarks.contest.contender import Contender, Metric, Skipped, timed

NAME = "litert-gpu"
METRIC: Metric = "host"


def covers(case: Case) -> bool:
    return case.batch == 1  # it cannot change the batch of a file


def contenders(case: Case) -> list[Contender]:
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.gpu_options import GpuOptions
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator
    from ai_edge_litert.options import Options

    options = Options(HardwareAccelerator.GPU, gpu_options=GpuOptions(enforce_f32=case.precision == "fp32"))
    model = CompiledModel.from_buffer(case.data, options=options)
    if not model.is_fully_accelerated():
        raise Skipped("LiteRT leaves a part of the model to the CPU")
    signature = model.get_signature_by_index(0)
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
    details = model.get_input_tensor_details(signature["key"])
    arrays = [case.inputs[details[name]["index"]] for name in signature["inputs"]]
    details = model.get_output_tensor_details(signature["key"])
    indices = [details[name]["index"] for name in signature["outputs"]]
    sizes = [case.expected[index].size for index in indices]

    def run() -> list[np.ndarray]:
        for buffer, array in zip(inputs, arrays, strict=True):
            buffer.write(array)
        model.run_by_index(0, inputs, outputs)
        return [buffer.read(size, np.float32) for buffer, size in zip(outputs, sizes, strict=True)]

    def error() -> float:
        found = dict(zip(indices, run(), strict=True))
        return case.error([found[index].reshape(case.expected[index].shape) for index in case.expected])

    run()
    return [Contender(NAME, METRIC, timed(run), error)]
