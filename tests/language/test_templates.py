"""Published chat templates render as transformers renders them, and as files without one ask for it."""

from __future__ import annotations

import json
import lzma
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

import tflgpu
from tflgpu.language.language_metadata import Affixes, LanguageMetadata
from tflgpu.language.prompt import written
from tflgpu.language.template_renderer import render

# Templates of the package trl 1.16, which has them from the repositories of their models.
TEMPLATES: dict[str, str] = json.loads(lzma.decompress((Path(__file__).parent / "chat_templates.json.xz").read_bytes()))

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather of a town, <b>now</b> & here.",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string", "description": "Its name, as in Köln."}},
            "required": ["town"],
        },
        "return": {"type": "string"},
    },
}

CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"town": "Köln"}}}

SAID = [
    {"role": "user", "content": "  How is it in <Köln> & 'Bonn'?\n"},
    {"role": "assistant", "content": "Fine.", "reasoning_content": "A town, or two."},
    {"role": "user", "content": "And now?"},
]

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "one": {"messages": SAID[:1]},
    "turns": {"messages": [{"role": "system", "content": "Be kind."}, *SAID]},
    "tools": {"messages": SAID, "tools": [WEATHER]},
    "calls": {
        "messages": [
            *SAID[:1],
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "rain"},
        ],
        "tools": [WEATHER],
    },
    "without thoughts": {"messages": SAID[:1], "enable_thinking": False},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "How?"}]}]},
    "not a turn": {"messages": [*SAID, *SAID[2:]]},
}


def outcome(function: Any, *args: Any, **kwargs: Any) -> str:
    """The text that a function makes, of transformers' the first one, or why it makes none."""
    try:
        made = function(*args, **kwargs)
        return str(made if isinstance(made, str) else made[0][0])
    except Exception as error:  # what a template raises
        return f"{type(error).__name__}: {error}"


def test_published_templates() -> None:
    """Byte for byte, errors of templates included."""
    for name, template in TEMPLATES.items():
        texts = set()
        for kind, given in CONVERSATIONS.items():
            others = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>", **given}
            others["add_generation_prompt"] = True
            said = others.pop("messages")
            messages = [m | ({"thinking": m["reasoning_content"]} if "reasoning_content" in m else {}) for m in said]
            expected = outcome(render_jinja_template, [said], chat_template=template, **others)
            assert outcome(render, template, others | {"messages": messages}) == expected, (name, kind)
            texts.add(expected)
        assert len(texts) > len(CONVERSATIONS) // 2, name


def test_what_transformers_documents() -> None:
    rows = {
        '{{- strftime_now("%d %B %Y") }}': datetime.now().strftime("%d %B %Y"),
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}": "Grüße <b>",
        "{{ messages[0].content | tojson }}": '"Grüße <b>"',
        "{{ messages | tojson(indent=1) }}": '[\n {\n  "role": "user",\n  "content": "Grüße <b>"\n }\n]',
        "{% if tools is not none %}x{% endif %}{{ tools }}": "None",
        "{% generation %}{{ messages[0].content }}{% endgeneration %}!": "Grüße <b>!",
        "{% for part in messages[0].content %}{{ part.text }}{% endfor %}": "Grüße <b>",
        "{%- if enable_thinking is false %}no{% endif %}": "no",
        "{{ dict(a=1).a }}{{ dict.fromkeys(['b']) }}": "1{'b': None}",
    }
    messages = [{"role": "user", "content": "Grüße <b>", "name": None}]
    for template, expected in rows.items():
        metadata = LanguageMetadata(jinja_template=template)
        assert written(metadata, messages, context={"enable_thinking": False}) == expected


@pytest.mark.parametrize(
    ("template", "match"),
    [
        ("{{ raise_exception('two users') }}", "two users"),
        ("{% set n = namespace() %}{% set n.__class__ = 1 %}", "begins with an underscore"),
        ("{{ dict.__class__ }}{{ dict.__call__.__globals__ }}", "unsafe|not safe|undefined"),
        ("{{ messages.append(1) }}", "unsafe|not safe|undefined"),
    ],
)
def test_templates_that_fail(template: str, match: str) -> None:
    with pytest.raises(tflgpu.ModelError, match=match):
        written(LanguageMetadata(jinja_template=template), SAID[:1])


def test_roles_without_a_template() -> None:
    metadata = LanguageMetadata(user=Affixes("<u>", "</u>"), model=Affixes("<m>", "</m>"), system=Affixes("<s>"))
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "model", "content": "M"}]
    assert written(metadata, [*messages, messages[1]]) == "<s>S<u>U</u><m>M</m><u>U</u><m>"
    with pytest.raises(tflgpu.ModelError, match="no template that tells the model of functions"):
        written(metadata, messages, tools=[WEATHER])
    with pytest.raises(tflgpu.ModelError, match="no template for the role 'tool'; it knows user, assistant"):
        written(metadata, [{"role": "tool", "content": "x"}])
    with pytest.raises(ValueError, match="content of the type 'image'; only texts are supported"):
        written(metadata, [{"role": "user", "content": [{"type": "image", "path": "x"}]}])
    with pytest.raises(ValueError, match="a conversation has a value that JSON cannot hold"):
        written(LanguageMetadata(jinja_template="x"), messages, context={"x": {1, 2}})
