"""Classify a picture with a quantized model, by the names of its tensors, on two threads of the CPU."""

import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel, CpuOptions, HardwareAccelerator, Options
from PIL import Image


def main(model_path, *picture_paths):
    options = Options(hardware_accelerators=HardwareAccelerator.CPU, cpu_options=CpuOptions(num_threads=2))
    with CompiledModel.from_file(model_path, options=options) as model:
        ((key, names),) = model.get_signature_list().items()
        (input_name,), (output_name,) = names["inputs"], names["outputs"]
        details = model.get_input_tensor_details(key)[input_name]
        given = {input_name: model.create_input_buffer_by_name(key, input_name)}
        scores = {output_name: model.create_output_buffer_by_name(key, output_name)}
        for path in picture_paths:
            picture = Image.open(path).convert("RGB").resize(details["shape"][2:0:-1])
            given[input_name].write(np.asarray(picture, details["dtype"]))
            model.run_by_name(key, given, scores)
            quantized = scores[output_name].read(1001, np.uint8)
            print(f"{quantized.argmax()}: {quantized.max() / 256:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
