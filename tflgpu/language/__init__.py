"""Language models: the files in which they are shipped, and answers to prompts.

from tflgpu.language import Generator

with Generator("model.litertlm") as generator:
    for piece in generator.stream("The capital of France is", max_tokens=20):
        print(piece, end="", flush=True)
"""

from __future__ import annotations

from tflgpu.language.answer import Answer, Statistics
from tflgpu.language.containers import LanguageFile, TokenizerData, open_language_file
from tflgpu.language.conversation import Conversation, Reply
from tflgpu.language.embedder import Embedder
from tflgpu.language.generator import Generator
from tflgpu.language.language_engine import Engine
from tflgpu.language.language_metadata import LanguageMetadata
from tflgpu.language.reply_parts import Part
from tflgpu.language.sampling import Sampler, Sampling, TokenLikelihood
from tflgpu.language.text_session import BusyError, Session
from tflgpu.language.token_decoder import TokenDecoder, TokenModel
from tflgpu.language.tokenizer import Tokenizer

__all__ = [
    "Answer",
    "BusyError",
    "Conversation",
    "Embedder",
    "Engine",
    "Generator",
    "LanguageFile",
    "LanguageMetadata",
    "Part",
    "Reply",
    "Sampler",
    "Sampling",
    "Session",
    "Statistics",
    "TokenDecoder",
    "TokenLikelihood",
    "TokenModel",
    "Tokenizer",
    "TokenizerData",
    "open_language_file",
]
