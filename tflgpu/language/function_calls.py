"""Reads the calls of functions that a model writes in its answer, between the marks that its file names."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tflgpu.errors import ModelError
from tflgpu.language.language_metadata import LanguageMetadata


@dataclass(frozen=True)
class FunctionCall:
    """A call that a model asks for.

    Attributes:
        name: Of the function.
        arguments: By name.
    """

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class CallMarks:
    """Marks of calls in an answer, and the syntax between them: JSON, Python, or FunctionGemma's own."""

    start: str
    end: str
    syntax: str = "json"
    quotes: tuple[str, str] = ("", "")


# By the type of model, where the file says no marks.
_MARKS = {
    "gemma3": CallMarks("```tool_code\n", "\n```", "python"),
    "gemma3n": CallMarks("```tool_code\n", "\n```", "python"),
    "function_gemma": CallMarks("<start_function_call>", "<end_function_call>", "fc", ("<escape>", "<escape>")),
    "gemma4": CallMarks("<|tool_call>", "<tool_call|>", "fc", ('<|"|>', '<|"|>')),
    "lfm2": CallMarks("<|tool_call_start|>", "<|tool_call_end|>", "python"),
}
_JSON_MARKS = CallMarks("<tool_call>", "</tool_call>")


def call_marks(metadata: LanguageMetadata) -> CallMarks:
    """Return the marks of a file's calls of functions.

    Args:
        metadata: The file's.

    Raises:
        ModelError: The syntax of calls is not known.
    """
    known, fields = _MARKS.get(metadata.model_type, _JSON_MARKS), metadata.model_fields
    syntax = str(fields.get("syntax_type") or known.syntax).lower()
    if syntax not in _READERS:
        raise ModelError(f"the file's calls of functions are of the syntax {syntax!r}; {', '.join(_READERS)} are known")
    return CallMarks(
        fields.get("code_fence_start") or known.start,
        fields.get("code_fence_end") or known.end,
        syntax,
        (fields.get("open_quote") or known.quotes[0], fields.get("close_quote") or known.quotes[1]),
    )


def parted(text: str, marks: CallMarks) -> tuple[str, list[FunctionCall]]:
    """Part an answer into the text for the user and the calls of functions.

    Args:
        text: The whole answer.
        marks: The marks of calls.

    Raises:
        ValueError: A call cannot be read; the message has it.
    """
    said, calls = "", []
    while (begin := text.find(marks.start)) >= 0:
        said += text[:begin]
        body, _, text = text[begin + len(marks.start) :].partition(marks.end)
        try:
            calls += _READERS[marks.syntax](body.strip(), marks)
        except (ValueError, SyntaxError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the model's call of a function cannot be read: {body.strip()!r}") from error
    return said + text, calls


def _read_json(text: str, _: CallMarks) -> list[FunctionCall]:
    found = json.loads(text)
    calls = []
    for each in found if isinstance(found, list) else [found]:
        arguments = each.get("arguments", each.get("parameters", {}))
        calls.append(
            FunctionCall(each["name"], json.loads(arguments) if isinstance(arguments, str) else dict(arguments))
        )
    return calls


def _read_python(text: str, _: CallMarks) -> list[FunctionCall]:
    """Read calls with keywords and literals: ``f(a=1)``, several as a list or one on each line, printed or not."""
    calls = []
    for statement in ast.parse(text).body:
        value: Any = statement.value  # type: ignore[attr-defined]
        nodes: list[Any] = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        for node in nodes:
            if ast.unparse(node.func) == "print" and len(node.args) == 1:
                node = node.args[0]
            if node.args:
                raise ValueError("arguments without names")
            arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
            calls.append(FunctionCall(ast.unparse(node.func), arguments))
    return calls


def _read_fc(text: str, marks: CallMarks) -> list[FunctionCall]:
    """Read ``call:name{key:value,...}``, whose texts are between quotes of the file."""
    opened, closed = map(re.escape, marks.quotes)
    texts: list[str] = []

    def keep(match: re.Match[str]) -> str:
        texts.append(match[1])
        return f'"\\u0000{len(texts) - 1}"'

    plain = re.sub(f"{opened}(.*?){closed}", keep, text, flags=re.DOTALL) if opened and closed else text
    calls = []
    for name, body in re.findall(r"call:([\w.-]+)(\{.*?\})(?=\s*(?:call:|$))", plain, re.DOTALL):
        body = re.sub(r"([{,]\s*)([A-Za-z_][\w.-]*)\s*:", r'\1"\2":', body)
        calls.append(FunctionCall(name, _restored(json.loads(body), texts)))
    if not calls:
        raise ValueError("no call")
    return calls


def _restored(value: Any, texts: list[str]) -> Any:
    """Return a value with the texts that were kept apart."""
    if isinstance(value, dict):
        return {key: _restored(each, texts) for key, each in value.items()}
    if isinstance(value, list):
        return [_restored(each, texts) for each in value]
    return texts[int(value[1:])] if isinstance(value, str) and value.startswith("\0") else value


_READERS = {"json": _read_json, "python": _read_python, "fc": _read_fc}
