"""Files with language models, and tokenizers for them, as tests need them."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import flatbuffers
import sentencepiece
from ai_edge_litert import schema_py_generated as schema
from google.protobuf.text_format import Parse
from litert_lm_builder.litertlm_builder import DType, LitertLmFileBuilder, Metadata, TfLiteModelType
from litert_lm_builder.runtime.proto.llm_metadata_pb2 import LlmMetadata
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.language.metadata_messages import llm_parameters

TEXT = (Path(__file__).parents[2] / "README.md").read_text()

BLOCK = 16 * 1024  # sections begin at multiples of it

START, STOP = "<s>", "</s>"


def bytes_tokenizer(size: int = 150) -> bytes:
    """Byte-pair encoding, of ``size`` tokens, as JSON of ``tokenizers``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = [letter for letter in pre_tokenizers.ByteLevel.alphabet() if ord(letter) < 127 or letter in "ĠĊ"]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[START, STOP],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return str(tokenizer.to_str()).encode()


def pieces_tokenizer(size: int = 150) -> bytes:
    """A unigram model of ``sentencepiece``, of ``size`` tokens."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for line in TEXT.splitlines() if line.isascii()),
        model_writer=written,
        vocab_size=size,
        character_coverage=1.0,
        byte_fallback=False,
        minloglevel=2,
    )
    return written.getvalue()


def described(text: str) -> bytes:
    """A message LlmMetadata of .litertlm files."""
    return bytes(Parse(text, LlmMetadata()).SerializeToString())


def task_described(text: str) -> bytes:
    """A message LlmParameters of .task files."""
    return bytes(Parse(text, llm_parameters()()).SerializeToString())


def built(folder: Path, metadata: str, model: bytes, tokenizer: bytes, executor: str = "") -> Path:
    """A .litertlm file that the official builder wrote."""
    parts = {"llm.textproto": metadata, "executor.textproto": executor, "tokenizer.json": tokenizer, "m.tflite": model}
    for name, part in parts.items():
        (folder / name).write_bytes(part.encode() if isinstance(part, str) else part)
    builder = LitertLmFileBuilder()
    builder.add_system_metadata(Metadata("author", "tests", DType.STRING))
    builder.add_llm_metadata(str(folder / "llm.textproto"))
    if executor:
        builder.add_executor_metadata(str(folder / "executor.textproto"))
    builder.add_hf_tokenizer(str(folder / "tokenizer.json"))
    builder.add_tflite_model(str(folder / "m.tflite"), TfLiteModelType.PREFILL_DECODE)
    path = folder / "built.litertlm"
    with path.open("wb") as file:
        builder.build(file)
    return path


def task_file(path: Path, model: bytes, tokenizer: bytes, metadata: bytes) -> Path:
    """A bundle as MediaPipe's tools write it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("TF_LITE_PREFILL_DECODE", model)
        archive.writestr("TOKENIZER_MODEL", tokenizer)
        archive.writestr("METADATA", metadata)
    return path


def section_file(path: Path, parts: Sequence[tuple[int, bytes, str]]) -> Path:
    """A .litertlm file. parts: type, bytes and model_type of each section."""
    begin, places = BLOCK, []
    for _, data, _ in parts:
        places.append((begin, begin + len(data)))
        begin = -(-(begin + len(data) + 1) // BLOCK) * BLOCK
    builder = flatbuffers.Builder()
    sections = [_section(builder, part[0], part[2], place) for part, place in zip(parts, places, strict=True)]
    objects = _offsets(builder, sections)
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, objects, 0)
    listed = builder.EndObject()
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(1, listed, 0)
    builder.Finish(builder.EndObject())
    table = bytes(builder.Output())
    head = (
        b"LITERTLM" + b"".join(n.to_bytes(4, "little") for n in (1, 7, 0, 0)) + (32 + len(table)).to_bytes(8, "little")
    )
    data = bytearray(places[-1][1])
    data[: len(head) + len(table)] = head + table
    for (first, last), (_, part, _) in zip(places, parts, strict=True):
        data[first:last] = part
    path.write_bytes(data)
    return path


def weights_apart(
    model: bytes, group: str = "tflite_weights", least: int = 64, packing: str | None = None
) -> tuple[bytes, bytes]:
    """A model without its constants of at least ``least`` bytes, and these as a section of weights.

    group, packing: what the model says of them.
    """
    file = unpacked(model)
    weights, numbers = bytearray(), dict[int, int]()
    file.externalBufferGroups = [schema.ExternalBufferGroupT(name="another"), schema.ExternalBufferGroupT(name=group)]
    file.externalBuffers = []
    for tensor in (tensor for graph in file.subgraphs for tensor in graph.tensors):
        data = file.buffers[tensor.buffer].data
        if data is None or len(data) < least:
            continue
        if tensor.buffer not in numbers:
            numbers[tensor.buffer] = 1000 + 7 * len(numbers)  # ids are no indices
            weights.extend(bytes(-len(weights) % 64))
            buffer = schema.ExternalBufferT(numbers[tensor.buffer], 1, len(weights), len(data), packing)
            file.externalBuffers.append(buffer)
            weights.extend(data)
        tensor.externalBuffer, tensor.buffer = numbers[tensor.buffer], 0
    for number in numbers:
        file.buffers[number].data = None
    return packed(file), bytes(weights)


def compressed(text: bytes) -> bytes:
    """A tokenizer of JSON as .litertlm files have it."""
    return len(text).to_bytes(8, "little") + zlib.compress(text)


def _section(builder: flatbuffers.Builder, kind: int, model_type: str, place: tuple[int, int]) -> int:
    items = 0
    if model_type:
        key, text = builder.CreateString("model_type"), builder.CreateString(model_type)
        builder.StartObject(1)
        builder.PrependUOffsetTRelativeSlot(0, text, 0)
        value = builder.EndObject()
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(0, key, 0)
        builder.PrependUint8Slot(1, 9, 0)
        builder.PrependUOffsetTRelativeSlot(2, value, 0)
        items = _offsets(builder, [builder.EndObject()])
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(0, items, 0)
    builder.PrependUint64Slot(1, place[0], 0)
    builder.PrependUint64Slot(2, place[1], 0)
    builder.PrependUint8Slot(3, kind, 0)
    return int(builder.EndObject())


def _offsets(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
