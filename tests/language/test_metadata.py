"""Metadata of files: every field that the official builder writes has an effect, or is an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.language.language_files import (
    TEXT,
    built,
    bytes_tokenizer,
    described,
    section_file,
    task_described,
    task_file,
)
from tests.language.small_models import litert_answer, sum_of_cache
from tflgpu.language import Generator, LanguageMetadata, Sampling, TokenModel, open_language_file
from tflgpu.language.language_metadata import Affixes, Channel, FileSampler

EVERYTHING = """
    start_token { token_ids { ids: 2 } }
    stop_tokens { token_str: "<end_of_turn>" } stop_tokens { token_ids { ids: 1 ids: 300 } }
    prompt_templates {
      user { prefix: "<user>" suffix: "<end>" } model { prefix: "<model>" suffix: "</model>" }
      system { prefix: "<system>" }
    }
    sampler_params { type: TOP_P k: 40 p: 0.5 temperature: 0.75 seed: 0 backend: CPU compute_exact_log_probs: true }
    max_num_tokens: 1280
    llm_model_type { qwen3 { code_fence_start: "<tool_call>" escape_fence_strings: true } }
    jinja_prompt_template: "{{ messages[0].content }}"
    channels { channel_name: "thought" start: "<think>" end: "</think>" is_reasoning_channel: true }
    suppress_tokens { ids: 92 ids: 47 }
    kv_cache_init_value: -3
    supports_thinking: true
    supports_function_calling: false
    pad_token { token_str: "<pad>" }
    min_runtime_version: "0.18.1"
"""

EXECUTOR = """llm_executor_metadata {
  state_buffers { prefill_input_name: "k" prefill_output_name: "k" decode_input_name: "k" decode_output_name: "k" }
  state_buffers { decode_input_name: "v" decode_output_name: "v" type: TYPE_GLOBAL_VALUE_CACHE sequence_axis: 1 }
  attention_mask_settings { attention_mask_type: ATTENTION_MASK_TYPE_CAUSAL }
}"""


def test_every_field(tmp_path: Path) -> None:
    tokenizer = bytes_tokenizer()
    file = open_language_file(built(tmp_path, EVERYTHING, b"\x18\0\0\0TFL3 a model", tokenizer, EXECUTOR))
    assert file.model() == b"\x18\0\0\0TFL3 a model"
    assert file.tokenizer is not None and file.tokenizer.data == tokenizer
    assert file.metadata == LanguageMetadata(
        start=(2,),
        stops=("<end_of_turn>", (1, 300)),
        pad="<pad>",
        user=Affixes("<user>", "<end>"),
        model=Affixes("<model>", "</model>"),
        system=Affixes("<system>"),
        jinja_template="{{ messages[0].content }}",
        max_tokens=1280,
        sampler=FileSampler("top p", 40, 0.5, 0.75, 0),
        suppressed=(92, 47),
        cache_value=-3,
        channels=(Channel("thought", "<think>", "</think>", True),),
        thinks=True,
        calls_functions=False,
        model_type="qwen3",
        model_fields={"code_fence_start": "<tool_call>", "escape_fence_strings": True},
        least_runtime="0.18.1",
    )


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        (described("") + b"\xf8\x01\x01", "LlmMetadata has fields that are not supported: number 31"),
        (b"\x0a\x02\x18\x01", "TokenUnion has fields that are not supported: number 3"),
        (described('min_runtime_version: "0.19"'), "needs LiteRT-LM 0.19 at least; files of up to 0.18"),
        (
            described("sampler_params { type: 7 }".replace("7", "GREEDY"))[:-1] + b"\x07",
            "sampler is of the unknown type 7",
        ),
    ],
)
def test_what_is_not_supported(tmp_path: Path, metadata: bytes, match: str) -> None:
    with pytest.raises(tflgpu.ModelError, match=match):
        open_language_file(section_file(tmp_path / "file", [(5, metadata, ""), (3, b"x", "")]))


@pytest.mark.parametrize(
    ("executor", "match"),
    [
        ('state_buffers { decode_input_name: "a" decode_output_name: "b" }', "has the names a, b"),
        (
            'state_buffers { decode_input_name: "a" type: TYPE_LOCAL_KEY_CACHE }',
            "'a' is of the type TYPE_LOCAL_KEY_CACHE",
        ),
        ("attention_mask_settings { attention_mask_type: ATTENTION_MASK_TYPE_BIDIRECTIONAL }", "mask of type 2"),
        ("attention_mask_settings { sliding_window_size: 8 }", "not supported: sliding_window_size"),
        ("max_history_size: 8", "not supported: max_history_size"),
    ],
)
def test_executors_that_are_not_supported(tmp_path: Path, executor: str, match: str) -> None:
    path = built(tmp_path, "", b"x", bytes_tokenizer(), f"llm_executor_metadata {{ {executor} }}")
    with pytest.raises(tflgpu.ModelError, match=match):
        open_language_file(path)


def test_tasks_with_roles_are_not_supported(tmp_path: Path) -> None:
    path = task_file(tmp_path / "file", b"x", b"{", task_described("vocab_size: 3") + b"\x5a\x01u")
    with pytest.raises(tflgpu.ModelError, match="LlmParameters has fields that are not supported: number 11"):
        open_language_file(path)


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_files_that_forbid_tokens_or_ask_for_a_sampler(shared: Path, device_name: str) -> None:
    options = tflgpu.Options(device=device_name, precision="fp32")
    with Generator(shared / "faults/second/t_suppress.litertlm", options) as generator:
        model = generator.file.model()
        for word in TEXT.split():
            prompt = generator.encode(word)
            plain, suppressed = (litert_answer(model, prompt, 12, forbidden) for forbidden in ((), (92, 47)))
            if plain != suppressed:
                break
        assert {92, 47} & set(plain)
        answer = generator.stream(word, max_tokens=12)
        list(answer)
        assert answer.tokens == (suppressed[: suppressed.index(1) + 1] if 1 in suppressed else suppressed)
    with Generator(shared / "faults/second/t_sampler.litertlm", options) as generator:
        sampling = Sampling(temperature=1, top_k=40, top_p=float(np.float32(0.95)), seed=1)
        assert generator.sampling() == sampling
        asked, given, greedy = (generator.generate(word, sampling=s) for s in (None, sampling, Sampling()))
        assert asked == given != greedy


def test_what_an_empty_cache_has(device_name: str) -> None:
    """A model that adds up all of its cache: numpy knows each score."""
    model, table = sum_of_cache(places=6)
    options = tflgpu.Options(device=device_name, precision="fp32", fallback="forbid")
    for value in (0, -3):
        with TokenModel.compile(model, options, cache_value=value) as compiled:
            for decoder in (compiled.decoder(), compiled.decoder()):
                decoder.read([5, 2])
                expected = table @ (table[[5, 2, 7]].sum(axis=0) + value * 3)
                np.testing.assert_allclose(decoder.step(7, 2).ravel(), expected, rtol=1e-5, atol=1e-4)
