"""Language models: the files in which they are shipped, and answers to prompts.

from tflgpu.language import Generator

with Generator("model.litertlm") as generator:
    for piece in generator.stream("The capital of France is", max_tokens=20):
        print(piece, end="", flush=True)
"""

from __future__ import annotations

from tflgpu.language.containers import LanguageFile, TokenizerData, open_language_file
from tflgpu.language.generator import Answer, Generator, Statistics
from tflgpu.language.language_metadata import LanguageMetadata
from tflgpu.language.sampling import Sampler, Sampling
from tflgpu.language.token_decoder import TokenDecoder
from tflgpu.language.tokenizer import Tokenizer

__all__ = [
    "Answer",
    "Generator",
    "LanguageFile",
    "LanguageMetadata",
    "Sampler",
    "Sampling",
    "Statistics",
    "TokenDecoder",
    "Tokenizer",
    "TokenizerData",
    "open_language_file",
]
