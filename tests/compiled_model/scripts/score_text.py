"""Say whether reviews are good, with several models of one environment."""

import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel, Environment


def main(model_path, *reviews):
    with Environment.create() as environment:
        models = [CompiledModel.from_file(model_path, environment=environment) for _ in range(2)]
        for number, review in enumerate(reviews):
            model = models[number % 2]
            assert model.environment is environment
            inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
            codes = np.zeros(256, np.float32)
            codes[: len(review)] = [ord(letter) * 7 % 900 for letter in review]
            inputs[0].write(codes)
            model.run_by_index(0, inputs, outputs)
            bad, good = outputs[0].read(2, np.float32)
            print(f"{review}: {bad:.4f} {good:.4f}")
    print("threads as", type(environment.options).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
