"""Reads the messages of Protocol Buffers in which files describe their language models, by generated classes.

A field that this module does not know may change every answer, so it is an error and never left out in silence.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

from tflgpu.errors import ModelError, install_command
from tflgpu.language.language_metadata import Affixes, Channel, FileSampler, LanguageMetadata, NamedToken

# The version of LiteRT-LM whose metadata this module knows.
RUNTIME = (0, 18)

_CLASSES = "litert_lm_builder.runtime.proto"

# Schema of what .task files say of their language model: MediaPipe's ``llm_params.proto``. No package ships its
# classes alone, so protobuf makes them of this description.
_SCHEMA = """
name: "llm_params.proto" package: "odml.infra.proto" syntax: "proto3"
message_type {
  name: "PromptTemplate"
  field { name: "session_prefix" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "prompt_prefix" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "prompt_suffix" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
}
message_type {
  name: "LlmParameters"
  oneof_decl { name: "start_token_union" }
  field { name: "transformer_parameters" number: 1 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "vocab_size" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "start_token_id" number: 4 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "start_token" number: 6 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "stop_tokens" number: 5 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "input_output_normalizations" number: 7 type: TYPE_INT32 label: LABEL_REPEATED }
  field {
    name: "prompt_template" number: 8 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: ".odml.infra.proto.PromptTemplate"
  }
  field { name: "num_draft_tokens" number: 9 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "submodel_transformer_parameters" number: 16 type: TYPE_BYTES label: LABEL_OPTIONAL }
}
"""

_KNOWN = {
    "LlmMetadata": {
        "start_token",
        "stop_tokens",
        "prompt_templates",
        "sampler_params",
        "max_num_tokens",
        "llm_model_type",
        "jinja_prompt_template",
        "channels",
        "suppress_tokens",
        "kv_cache_init_value",
        "supports_thinking",
        "supports_function_calling",
        "pad_token",
        "min_runtime_version",
    },
    "TokenUnion": {"token_ids", "token_str"},
    "TokenIds": {"ids"},
    "PromptTemplates": {"user", "model", "system"},
    "PromptAffixes": {"prefix", "suffix"},
    # Where a sampler runs, and whether it knows exact probabilities, changes no token.
    "SamplerParameters": {"type", "k", "p", "temperature", "seed", "backend", "compute_exact_log_probs"},
    "Channel": {"channel_name", "start", "end", "is_reasoning_channel"},
    # Fields that do not change the vector of a text: those about sounds, and the shortest text.
    "EmbeddingMetadata": {
        "embedding_model_type",
        "bos_token",
        "eos_token",
        "audio_preprocessor",
        "min_input_length",
        "max_input_length",
        "min_runtime_version",
    },
    "ExecutorMetadata": {"llm_executor_metadata"},
    "LlmExecutorMetadata": {"state_buffers", "attention_mask_settings"},
    # The lengths of a state are those of the model's tensors.
    "StateBuffer": {
        "prefill_input_name",
        "prefill_output_name",
        "decode_input_name",
        "decode_output_name",
        "policy",
        "type",
        "sequence_axis",
        "minimum_sequence_length",
        "maximum_sequence_length",
    },
    "AttentionMaskSettings": {"attention_mask_type"},
    "LlmParameters": {
        "start_token_id",
        "start_token",
        "stop_tokens",
        "input_output_normalizations",
        "prompt_template",
        # They describe models of another kind than TensorFlow Lite's, or how to be faster.
        "transformer_parameters",
        "vocab_size",
        "num_draft_tokens",
        "submodel_transformer_parameters",
    },
    "PromptTemplate": {"session_prefix", "prompt_prefix", "prompt_suffix"},
}

_SAMPLERS = {0: "unspecified", 1: "top k", 2: "top p", 3: "greedy"}

# Types of SamplerParameters and StateBuffer, and of AttentionMaskSettings, that a model with a cache of all places has.
_WHOLE_CACHES, _CAUSAL = {0, 1, 2}, {0, 1}

_LETTERS_OF_BYTES = 1


def section_metadata(data: bytes) -> LanguageMetadata:
    """Return the metadata of a .litertlm file.

    Args:
        data: A message LlmMetadata.

    Raises:
        ModelError: The message is damaged, or asks for something that is not supported.
        ValueError: The package with the generated classes is not installed.
    """
    message = _parsed(_generated("llm_metadata_pb2").LlmMetadata, data)
    _check_runtime(message.min_runtime_version)
    kind = message.llm_model_type.WhichOneof("model_type")
    templates = message.prompt_templates
    return LanguageMetadata(
        start=_named_token(message.start_token),
        stops=tuple(stop for stop in map(_named_token, message.stop_tokens) if stop is not None),
        pad=_named_token(message.pad_token),
        user=_affixes(templates.user),
        model=_affixes(templates.model),
        system=_affixes(templates.system),
        jinja_template=message.jinja_prompt_template,
        max_tokens=max(message.max_num_tokens, 0),
        sampler=_sampler(message.sampler_params) if message.HasField("sampler_params") else None,
        suppressed=tuple(message.suppress_tokens.ids),
        cache_value=message.kv_cache_init_value,
        channels=tuple(map(_channel, message.channels)),
        thinks=_given(message, "supports_thinking"),
        calls_functions=_given(message, "supports_function_calling"),
        model_type=kind or "",
        model_fields=MappingProxyType(_fields(getattr(message.llm_model_type, kind)) if kind else {}),
        least_runtime=message.min_runtime_version,
    )


def embedding_metadata(data: bytes) -> LanguageMetadata:
    """Return the metadata of a .litertlm file with an encoder of texts.

    Args:
        data: A message EmbeddingMetadata.

    Raises:
        ModelError: The message is damaged, or asks for something that is not supported.
        ValueError: The package with the generated classes is not installed.
    """
    message = _parsed(_generated("embedding_metadata_pb2").EmbeddingMetadata, data)
    _check_runtime(message.min_runtime_version)
    kind, end = message.embedding_model_type.WhichOneof("model_type"), _named_token(message.eos_token)
    return LanguageMetadata(
        start=_named_token(message.bos_token),
        stops=() if end is None else (end,),
        max_tokens=max(message.max_input_length, 0),
        model_type=kind or "",
        model_fields=MappingProxyType(_fields(getattr(message.embedding_model_type, kind)) if kind else {}),
        least_runtime=message.min_runtime_version,
    )


def check_executor_metadata(data: bytes) -> None:
    """Accept the caches and masks of a .litertlm file if they are supported.

    Args:
        data: A message ExecutorMetadata.

    Raises:
        ModelError: The message is damaged, or asks for something that is not supported.
        ValueError: The package with the generated classes is not installed.
    """
    executor = _parsed(_generated("executor_metadata_pb2").ExecutorMetadata, data).llm_executor_metadata
    for state in executor.state_buffers:
        names = {state.prefill_input_name, state.prefill_output_name, state.decode_input_name, state.decode_output_name}
        if len(names - {""}) > 1:
            raise ModelError(
                f"the cache has the names {', '.join(sorted(names - {''}))} in the file's signatures; one was expected"
            )
        if state.type not in _WHOLE_CACHES or state.policy:
            kind = type(state).Type.Name(state.type) if state.type in type(state).Type.values() else state.type
            raise ModelError(f"the cache {state.decode_input_name!r} is of the type {kind}, which is not supported")
    mask = executor.attention_mask_settings.attention_mask_type
    if mask not in _CAUSAL:
        raise ModelError(f"the model's attention has a mask of type {mask}, and a causal one is supported")


@cache
def llm_parameters() -> Any:
    """Return the class of the message LlmParameters.

    Raises:
        ModuleNotFoundError: The package protobuf is not installed.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass
    from google.protobuf.text_format import Parse

    pool = DescriptorPool()
    pool.Add(Parse(_SCHEMA, FileDescriptorProto()))
    return GetMessageClass(pool.FindMessageTypeByName("odml.infra.proto.LlmParameters"))


def task_metadata(data: bytes) -> LanguageMetadata:
    """Return the metadata of a .task file.

    Args:
        data: A message LlmParameters.

    Raises:
        ModelError: The message is damaged, or asks for something that is not supported.
        ValueError: The package protobuf is not installed.
    """
    try:
        message = _parsed(llm_parameters(), data)
    except ModuleNotFoundError as error:
        raise _not_installed("protobuf") from error
    start: NamedToken | None = message.start_token or None
    if message.WhichOneof("start_token_union") == "start_token_id":
        start = (message.start_token_id,)
    template = message.prompt_template
    return LanguageMetadata(
        start=start,
        stops=tuple(stop for stop in message.stop_tokens if stop),
        user=Affixes(template.session_prefix + template.prompt_prefix, template.prompt_suffix),
        bytes_as_letters=_LETTERS_OF_BYTES in message.input_output_normalizations,
    )


def _generated(module: str) -> Any:
    try:
        return import_module(f"{_CLASSES}.{module}")
    except ModuleNotFoundError as error:
        raise _not_installed(_CLASSES.partition(".")[0]) from error


def _not_installed(package: str) -> ValueError:
    return ValueError(f"the metadata need the package {package}; install it with {install_command('language')}")


def _parsed(kind: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        message = kind.FromString(data)
    except DecodeError as error:
        raise ModelError(f"the metadata are damaged: {error}") from error
    _check_known(message)
    return message


def _check_known(message: Any) -> None:
    """Raise ModelError for a field that nothing here reads, in the message or in one within it."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    name = message.DESCRIPTOR.name
    strange = [f"number {unknown.field_number}" for unknown in UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if name in _KNOWN and field.name not in _KNOWN[name]:
            strange.append(field.name)
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                _check_known(part)
    if strange:
        raise ModelError(
            f"the file's {name} has fields that are not supported: {', '.join(strange)}; "
            "they may change what the model answers"
        )


def _check_runtime(version: str) -> None:
    numbers = tuple(int(part) if part.isdecimal() else 0 for part in version.split(".")[: len(RUNTIME)])
    if numbers > RUNTIME:
        known = ".".join(map(str, RUNTIME))
        raise ModelError(f"the file needs LiteRT-LM {version} at least; files of up to {known} are supported")


def _named_token(union: Any) -> NamedToken | None:
    """Read a TokenUnion: ids, or a text."""
    return union.token_str or tuple(union.token_ids.ids) or None


def _affixes(message: Any) -> Affixes:
    return Affixes(message.prefix, message.suffix)


def _channel(message: Any) -> Channel:
    return Channel(message.channel_name, message.start, message.end, _given(message, "is_reasoning_channel"))


def _sampler(message: Any) -> FileSampler:
    if message.type not in _SAMPLERS:
        raise ModelError(f"the file's sampler is of the unknown type {message.type}")
    seed = _given(message, "seed")
    return FileSampler(_SAMPLERS[message.type], message.k, message.p, message.temperature, seed)  # type: ignore[arg-type]


def _given(message: Any, name: str) -> Any:
    """Return a field's value, None if the message has none."""
    return getattr(message, name) if message.HasField(name) else None


def _fields(message: Any) -> dict[str, Any]:
    """Return the fields of a message as Python's numbers, texts, lists and dictionaries."""
    from google.protobuf.json_format import MessageToDict

    return dict(MessageToDict(message, preserving_proto_field_name=True))
