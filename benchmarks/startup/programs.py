"""Programs of the processes. Each prints "ready" when it is done, then its facts: ``program + REPORT``."""

from __future__ import annotations

REPORT = """
print("ready", flush=True)
import json, re, time
status = open("/proc/self/status").read()
facts["peak_bytes"] = 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status)[1])
facts["cpu_s"] = time.process_time()
print(json.dumps(facts))
"""
TFLGPU = """
import sys
import numpy as np
import tflgpu
path, batch, device, precision, cache = sys.argv[1:]
batch = int(batch) if batch != "1" else None
shapes, files = tflgpu.Shapes(batch=batch), tflgpu.CacheFiles(path=cache)
options = tflgpu.Options(device=device, precision=precision, shapes=shapes, cache_files=files)
model = tflgpu.compile(path, options)
model.run([np.zeros(i.shape, i.dtype) for i in model.inputs])
facts = {
    "stages": model.seconds, "weights_bytes": model.report.constant_bytes, "arena_bytes": model.report.arena_bytes
}
"""
LITERT_CPU = """
import sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
path, batch, threads = sys.argv[1:]
model = Interpreter(model_path=path, num_threads=int(threads))
if batch != "1":
    for detail in model.get_input_details():
        model.resize_tensor_input(detail["index"], (int(batch), *detail["shape"][1:]))
model.allocate_tensors()
for detail in model.get_input_details():
    model.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
model.invoke()
model.get_tensor(model.get_output_details()[0]["index"])
facts = {}
"""
LITERT_GPU = """
import sys
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.hardware_accelerator import HardwareAccelerator
model = CompiledModel.from_file(sys.argv[1], HardwareAccelerator.GPU)
assert model.is_fully_accelerated(), "LiteRT leaves a part of the model to the CPU"
inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
model.run_by_index(0, inputs, outputs)
facts = {}
"""
IDLE = """
import tflgpu
facts = {}
"""
OPENED = """
import sys
import tflgpu
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session
session = open_session(choose(sys.argv[1]))
facts = {}
"""
EMPTY = OPENED.replace(
    "facts = {}",
    """from tflgpu.runtime.opencl.program import compile_program
compile_program(session.context, "__kernel void empty() {}")
facts = {}""",
)
