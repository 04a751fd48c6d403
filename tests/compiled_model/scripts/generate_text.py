"""Generate tokens with a small language model of two signatures, whose caches of keys and values are shared."""

import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel

PROMPT = [3, 14, 15, 92, 65, 35]


def main(model_path, count):
    model = CompiledModel.from_file(model_path)
    print(f"{model.get_num_signatures()} signatures, unknown: {model.get_signature_index('train')}")
    caches = [name for name in model.get_signature_list()["decode"]["inputs"] if name.startswith("kv_cache")]
    now, after = ({name: model.create_input_buffer_by_name("decode", name) for name in caches} for _ in range(2))
    for buffer in now.values():
        buffer.write(np.zeros(buffer.get_tensor_details()["shape"], np.float32))

    tokens = np.zeros((1, 100), np.int32)
    tokens[0, : len(PROMPT)] = PROMPT
    run(model, "prefill", tokens, np.arange(100, dtype=np.int32), now, after)
    now, after = after, now
    token = PROMPT[-1]
    for position in range(len(PROMPT) - 1, len(PROMPT) - 1 + int(count)):
        logits = run(model, "decode", np.int32([[token]]), np.int32([position]), now, after)
        now, after = after, now
        token = int(logits.argmax())
        print(f"position {position}: token {token}, logit {logits.max():.3f}")


def run(model, key, tokens, positions, now, after):
    given = {"tokens": tokens, "input_pos": positions}
    inputs = {name: model.create_input_buffer_by_name(key, name) for name in given} | now
    for name, value in given.items():
        inputs[name].write(value)
    logits = model.create_output_buffer_by_name(key, "logits")
    model.run_by_name(key, inputs, after | {"logits": logits})
    return logits.read(tokens.size * 150, np.float32).reshape(-1, 150)[-1]


if __name__ == "__main__":
    main(*sys.argv[1:])
