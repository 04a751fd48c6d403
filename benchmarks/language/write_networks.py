"""Writes the descriptions in this folder anew, by litert-torch 0.10 and its definition of SmolLM.

    pip install litert-torch==0.10.0
    python -m benchmarks.language.write_networks FOLDER

They are kept in the repository because this takes litert-torch, minutes and 6 GB of memory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.language.description import described

PREFILL, CACHE = 128, 1280

# The name of each description, and what litert-torch calls its quantization.
KINDS = {"fp16": "fp16", "int8": "dynamic_int8", "int4": "dynamic_int4_block32"}


def write(folder: Path) -> None:
    """Convert SmolLM with random weights, and quantize it in each way."""
    import torch
    from litert_torch.generative.examples.smollm import smollm
    from litert_torch.generative.utilities import converter
    from litert_torch.generative.utilities.export_config import ExportConfig
    from litert_torch.quantize import translate_recipe

    torch.manual_seed(0)
    config = smollm.get_model_config()
    network = smollm.SmolLM(config, CACHE).eval()
    for parameter in network.parameters():
        is_norm = parameter.dim() == 1
        torch.nn.init.normal_(parameter, 1.0 if is_norm else 0.0, 0.02 if is_norm else 0.05)
    network.lm_head.weight = network.tok_embedding.weight
    path = converter.convert_to_tflite(
        network, str(folder), "smollm", [PREFILL], CACHE, quantize="none", config=config, export_config=ExportConfig()
    )
    model = Path(path).read_bytes()
    for name, quantization in KINDS.items():
        recipe = converter.get_quant_recipe_from_flag(quantization, config)
        translated = translate_recipe.translate_to_ai_edge_recipe(recipe.generative_recipe)
        description = described(translate_recipe.quantize_model(model, translated))
        (folder / f"smollm_{name}.tflite.xz").write_bytes(description)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
