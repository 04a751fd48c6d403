"""Do what is wrong, and go on: files that are none, arrays of another size or type, closed models."""

import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel


def attempt(what, action):
    try:
        action()
    except RuntimeError:
        print(what, "fails at run time")
    except (ValueError, AttributeError):
        print(what, "is a wrong value")
    except TypeError:
        print(what, "is of a wrong type")
    else:
        print(what, "is fine")


def main(model_path):
    attempt("a missing file", lambda: CompiledModel.from_file(model_path + "x"))
    attempt("a text", lambda: CompiledModel.from_file(__file__))
    attempt("no bytes", lambda: CompiledModel.from_buffer(None))
    model = CompiledModel.from_file(model_path)
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
    attempt("a list", lambda: inputs[0].write([0.0]))
    attempt("a double", lambda: inputs[0].write(np.zeros(64)))
    attempt("a long array", lambda: inputs[0].write(np.zeros(65, np.float32)))
    attempt("a short array", lambda: inputs[0].write(np.zeros(63, np.float32)))
    attempt("no input", lambda: model.run_by_index(0, [], outputs))
    attempt("no output", lambda: model.run_by_index(0, inputs, []))
    attempt("an array", lambda: model.run_by_index(0, [np.zeros(64, np.float32)], outputs))
    attempt("an unknown signature", lambda: model.run_by_name("train", {}, {}))
    attempt("an unknown output", lambda: model.create_output_buffer_by_name("serving_default", "loss"))
    attempt("a fixed size", lambda: model.resize_input_tensor(0, [2, 8, 8, 1]))
    inputs[0].write(np.eye(8, dtype=np.float32))
    model.run_by_index(0, inputs, outputs)
    attempt("more than there is", lambda: outputs[0].read(11, np.float32))
    print("and still reads", outputs[0].read(10, np.float32).argmax())
    inputs[0].destroy()
    attempt("a destroyed buffer", lambda: model.run_by_index(0, inputs, outputs))
    attempt("its content", lambda: inputs[0].read(1, np.float32))
    model.close()
    model.close()
    attempt("a closed model", lambda: model.create_input_buffers(0))
    print("which was", outputs[0].read(10, np.float32).argmax())


if __name__ == "__main__":
    main(*sys.argv[1:])
