"""Call a model by the names of its signature."""

import sys

import numpy as np
from tflite_runtime.interpreter import Interpreter


def main(model, count):
    interpreter = Interpreter(model)
    for key, names in interpreter.get_signature_list().items():
        print(key, names)
        runner = interpreter.get_signature_runner(key)
        inputs = {}
        for name, details in runner.get_input_details().items():
            shape = (int(count), *details["shape"][1:])
            print("input", name, details["shape"].tolist(), details["dtype"].__name__)
            inputs[name] = np.random.default_rng(1).random(shape).astype(details["dtype"])
        for name, value in runner(**inputs).items():
            print("output", name, value.shape, runner.get_output_details()[name]["shape"].tolist())
            for row in value:
                print(np.argmax(row), np.array2string(row, precision=3, suppress_small=True, max_line_width=200))


if __name__ == "__main__":
    main(*sys.argv[1:])
