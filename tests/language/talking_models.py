"""A model of tests that says known things in conversations, and its file."""

from __future__ import annotations

from tests.language.language_files import bytes_tokenizer
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
