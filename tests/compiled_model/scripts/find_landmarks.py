"""Find points of a face; buffers are destroyed when they are no longer needed."""

import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from PIL import Image


def main(model_path, picture_path):
    with CompiledModel.from_file(model_path) as model:
        key = "<placeholder signature>"
        names = model.get_signature_list()[key]
        inputs = {name: model.create_input_buffer_by_name(key, name) for name in names["inputs"]}
        outputs = {name: model.create_output_buffer_by_name(key, name) for name in names["outputs"]}
        picture = Image.open(picture_path).convert("RGB").resize((192, 192))
        inputs["input_1"].write(np.asarray(picture, np.float32)[None] / 255)
        model.run_by_name(key, inputs, outputs)
    points = outputs["conv2d_20"].read((468, 3), np.float32)
    print(f"face: {outputs['conv2d_30'].read(1, np.float32)[0]:.2f}")
    for number in (1, 33, 263, 291):
        print("point", number, *(f"{place:.1f}" for place in points[number]))
    for buffer in (*inputs.values(), *outputs.values()):
        buffer.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:])
