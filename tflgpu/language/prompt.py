"""How a conversation is written for a model: with the text that its file puts around what each role says."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tflgpu.errors import ModelError
from tflgpu.language import template_renderer
from tflgpu.language.language_metadata import LanguageMetadata
from tflgpu.processes import can_run, end_in_words

RENDERER = Path(template_renderer.__file__)

# Seconds for a process to start and to render, on a machine so busy that it gets a fifth of a core.
PATIENCE = 30.0

# Names under which messages have a model's thoughts. Templates read the first two.
_THOUGHTS = ("reasoning_content", "thinking", "reasoning")


def written_prompt(metadata: LanguageMetadata, prompt: str) -> str:
    """Return the prompt as a user's part of a conversation, up to where the model's answer begins.

    Args:
        metadata: The file's, with its template.
        prompt: The user's words.

    Raises:
        ModelError: The template fails.
    """
    return written(metadata, [{"role": "user", "content": prompt}])


def written(
    metadata: LanguageMetadata,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    context: Mapping[str, Any] | None = None,
    end: str = "",
) -> str:
    """Return a conversation as the model reads it, up to where its answer begins.

    A file's template of Jinja comes before its affixes; without both, what is said is written as it is.

    Args:
        metadata: What the file says.
        messages: Roles and contents, with further fields that templates may know.
        tools: Descriptions of functions, for the template.
        context: Variables of the template beside those that every one has.
        end: The text of the token that ends an answer.

    Raises:
        ModelError: The template fails, or the file has none, and there are tools or roles that need one.
        ValueError: A message has images or sounds.
    """
    plain = [_plain(message) for message in messages]
    if not metadata.jinja_template:
        return _with_affixes(metadata, plain, tools)
    variables = {
        "messages": plain,
        "tools": None if tools is None else list(tools),
        "documents": None,
        "add_generation_prompt": True,
        "bos_token": "",  # the start token comes before the text, as a token
        "eos_token": end,
        **(context or {}),
    }
    text = _rendered(metadata.jinja_template, variables)
    if _says_all(text, plain):
        return text
    # Some templates read a content as a list of parts only.
    parts = [message | {"content": [{"type": "text", "text": message.get("content", "")}]} for message in plain]
    try:
        other = _rendered(metadata.jinja_template, variables | {"messages": parts})
    except ModelError:
        return text
    return other if _says_all(other, plain) else text


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as templates expect it: one text, no fields without value, thoughts under their known names.

    Raises ValueError for images and sounds.
    """
    found = {name: value for name, value in message.items() if value is not None}
    if isinstance(content := found.get("content"), Sequence) and not isinstance(content, str):
        found["content"] = "".join(map(_text_of, content))
    thought = next((found[name] for name in _THOUGHTS if name in found), None)
    return found if thought is None else {"thinking": thought, **found, "reasoning_content": thought}


def _text_of(part: object) -> str:
    """Return the text of a part of a content; the response of a function as JSON, unless it is a text."""
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        if part.get("type") == "text":
            return str(part.get("text", ""))
        if part.get("type") == "tool_response":
            response = part.get("response")
            return response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise ValueError(f"a message has content of the type {kind!r}; only texts are supported")


def _says_all(text: str, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the last thing that a user says is in a text."""
    said = [str(m.get("content", "")).strip() for m in messages if m.get("role") == "user"]
    return not said or said[-1] in text


def _with_affixes(
    metadata: LanguageMetadata, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> str:
    affixes = {"user": metadata.user, "assistant": metadata.model, "model": metadata.model, "system": metadata.system}
    if tools:
        raise ModelError("the file has no template that tells the model of functions")
    text = ""
    for message in messages:
        role = message.get("role")
        if role not in affixes:
            raise ModelError(f"the file has no template for the role {role!r}; it knows {', '.join(affixes)}")
        text += f"{affixes[role].prefix}{message.get('content', '')}{affixes[role].suffix}"
    return text + metadata.model.prefix


def _rendered(template: str, variables: Mapping[str, Any]) -> str:
    """Return what a file's own template makes of a conversation, in a process of its own with limits.

    A program without a Python interpreter, such as a frozen one, renders here, without limits.
    """
    try:
        request = json.loads(json.dumps({"template": template, "variables": variables}))
    except (TypeError, ValueError) as error:
        raise ValueError(f"a conversation has a value that JSON cannot hold: {error}") from error
    reply = _asked(request) if can_run(RENDERER) else template_renderer.reply(request)
    if "error" in reply:
        raise ModelError(f"the file's prompt template fails: {reply['error']}")
    return reply["text"]


def _asked(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the reply of a process for one request."""
    import subprocess  # who has no template does without

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        process = subprocess.run(
            [sys.executable, "-S", "-P", str(RENDERER)],
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it did not end within {PATIENCE:g} s"}
    except OSError as error:
        return {"error": f"no process can be started for it: {error}"}
    if not process.stdout:
        late = process.returncode == -getattr(signal, "SIGXCPU", 0)
        end = f"takes more than {template_renderer.SECONDS} s" if late else end_in_words(process.returncode)
        return {"error": f"it {end}"}
    return dict(json.loads(process.stdout))
