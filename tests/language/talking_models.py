"""A model of tests that says known things in conversations, and its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.language.known_models import KnownModel, let_files_hold, scripted
from tests.language.language_files import bytes_tokenizer, compressed, described, section_file
from tflgpu.language.containers import tokenizer_data
from tflgpu.language.tokenizer import load_tokenizer

TOKENIZER = load_tokenizer(tokenizer_data(bytes_tokenizer()))

TEMPLATE = (
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}</s>{% endfor %}<assistant>"
)

METADATA = """
    start_token { token_ids { ids: 0 } } stop_tokens { token_str: "</s>" }
    channels { channel_name: "thought" start: "<think>" end: "</think>" is_reasoning_channel: true }
    llm_model_type { qwen3 { code_fence_start: "<call>" code_fence_end: "</call>" } }
"""

ANSWERS = {
    "Hi</s><assistant>": "Hello.",
    "More</s><assistant>": "<think>Is it </think>Well.",
    "What is 2 + 3?</s><assistant>": 'I ask.<call>{"name": "add", "arguments": {"a": 2, "b": 3}}</call>',
    "<tool>5</s><assistant>": "It is 5.",
    "Bad</s><assistant>": "<call>add(</call>",
}


def talking_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a file with a model that knows :data:`ANSWERS`."""
    rule = scripted(TOKENIZER, TOKENIZER.find("</s>") or 1, ANSWERS)
    let_files_hold(monkeypatch, KnownModel(size=700, rule=rule))
    metadata = described(f"{METADATA} jinja_prompt_template: {json.dumps(TEMPLATE)}")
    return section_file(path, [(5, metadata, ""), (6, compressed(bytes_tokenizer()), ""), (3, b"", "")])
