"""Print what models take and give."""

import sys

from ai_edge_litert.compiled_model import CompiledModel


def main(*paths):
    for path in paths:
        model = CompiledModel.from_file(path)
        for number, (key, names) in enumerate(model.get_signature_list().items()):
            print(number, model.get_signature_index(key), key, names)
            for name, details in {
                **model.get_input_tensor_details(key),
                **model.get_output_tensor_details(key),
            }.items():
                print(" ", name, details)
            for index, name in enumerate(names["inputs"]):
                print("  input", name, model.get_input_buffer_requirements(index, number)["buffer_size"])
            for index, name in enumerate(names["outputs"]):
                print("  output", name, model.get_output_buffer_requirements(index, number)["buffer_size"])


if __name__ == "__main__":
    main(*sys.argv[1:])
