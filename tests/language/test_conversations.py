"""Conversations of several turns: what is read of them, what is thought and called in them, and LiteRT-LM's names."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from tests.language.language_files import bytes_tokenizer, compressed, described, pieces_tokenizer, section_file
from tests.language.talking_models import METADATA, talking_file
from tflgpu import ModelError, litert_lm
from tflgpu.language import BusyError, Conversation, Engine, Sampling
from tflgpu.language.containers import TokenizerData, tokenizer_data
from tflgpu.language.grammars import Grammars
from tflgpu.language.reply_parts import CallMarks, FunctionCall, parted
from tflgpu.language.sampling import Sampler
from tflgpu.language.tokenizer import load_tokenizer


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a model that knows some answers."""
    return talking_file(tmp_path / "model.litertlm", monkeypatch)


def test_turns_read_only_what_is_new(path: Path) -> None:
    with Engine(path) as engine, Conversation(engine, messages=[{"role": "system", "content": "S"}]) as talk:
        assert talk.send("Hi") == {"role": "assistant", "content": "Hello."}
        begun = talk.token_count
        branch = talk.copy()
        reply = talk.stream("More")
        parts = list(reply)
        assert reply.answer.statistics.kept_tokens >= begun - 1
        assert ("".join(t for t, c in parts if c), "".join(t for t, c in parts if not c)) == ("Is it ", "Well.")
        assert reply.message["channels"] == {"thought": "Is it "} and reply.message["reasoning_content"] == "Is it "
        assert [m["role"] for m in talk.messages] == ["system", "user", "assistant", "user", "assistant"]
        left = branch.stream("More")
        next(left)
        with pytest.raises(BusyError):
            branch.send("Hi")
        left.close()
        assert branch.messages == talk.messages[:3]
        assert branch.send("Hi")["content"] == "Hello."
        branch.messages[0] = {"role": "system", "content": "T"}
        assert branch.send("Hi")["content"] == "Hello.", "a changed beginning is read again"
        with pytest.raises(ValueError, match=r"the prompt has \d+ tokens, and the model has room for 700"):
            talk.send("x" * 900)
        with pytest.raises(TypeError, match="a text, or dictionaries with 'role' and 'content' were expected"):
            talk.send([1])  # type: ignore[list-item]


def test_replies_of_tasks(path: Path) -> None:
    async def said(engine: Engine, text: str) -> str:
        with Conversation(engine) as talk:
            return "".join([part.text async for part in talk.stream(text)])

    async def all_of_them(engine: Engine) -> list[str]:
        return list(await asyncio.gather(*(said(engine, text) for text in ("Hi", "More", "Hi"))))

    with Engine(path) as engine:
        assert asyncio.run(all_of_them(engine)) == ["Hello.", "Is it Well.", "Hello."]


def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return int(a + b)


def test_the_chat_example_of_litert_lm(path: Path) -> None:
    litert_lm.set_min_log_severity(litert_lm.LogSeverity.ERROR)
    with litert_lm.Engine(path) as engine, engine.create_conversation(system_message="S") as conversation:
        chunks = [chunk["content"][0]["text"] for chunk in conversation.send_message_async("Hi")]
        assert "".join(chunks) == "Hello." and len(chunks) > 1
        reply = conversation.send_message(litert_lm.Message.user("More"))
        assert (str(reply), reply.role, reply.channels) == ("Well.", litert_lm.Role.MODEL, {"thought": "Is it "})
        assert reply["content"][0]["text"] == "Well."
        assert conversation.render_message_to_string("x").endswith("<user>x</s><assistant>")
        assert conversation.get_benchmark_info().last_decode_token_count > 3 and conversation.token_count > 20
        assert (engine.bos_token_id, engine.eos_token_ids) == (0, [[1]])
        assert engine.detokenize(engine.tokenize("two words")) == "two words"
        cut = conversation.send_message("Hi", max_output_tokens=2)
        assert "Hello.".startswith(str(cut)) and str(cut) != "Hello."


def test_the_tools_example_of_litert_lm(path: Path) -> None:
    with litert_lm.Engine(path, backend=litert_lm.Backend.CPU()) as engine:
        with engine.create_conversation(tools=[add]) as conversation:
            response = conversation.send_message("What is 2 + 3?")
            assert response["content"][0]["text"] == "It is 5."
            assert [m["role"] for m in conversation.messages] == ["user", "assistant", "tool", "assistant"]
            assert "".join(map(str, conversation.send_message_async("What is 2 + 3?"))) == "I ask.It is 5."
            assert str(conversation.send_message("Bad")) == "<call>add(</call>"
        with engine.create_conversation(tools=[add], automatic_tool_calling=False) as conversation:
            (call,) = conversation.send_message("What is 2 + 3?").tool_calls
            assert (call.name, call.arguments) == ("add", {"a": 2, "b": 3})
            result = litert_lm.Content.ToolResponse("add", 5)
            assert str(conversation.send_message(litert_lm.Message.tool(litert_lm.Contents.of(result)))) == "It is 5."
        with pytest.raises(ValueError, match="the settings lora_config, which tflgpu does not support"):
            engine.create_conversation(lora_config=1, enable_speculative_decoding=False)
    description = litert_lm.tool_from_function(add).get_tool_description()["function"]
    assert description["description"] == "Add two numbers."
    assert description["parameters"]["properties"]["a"] == {"type": "number", "description": "The first number."}
    assert description["parameters"]["required"] == ["a", "b"]


def test_a_model_that_calls_no_functions(path: Path) -> None:
    metadata = described(f"{METADATA} supports_function_calling: false")
    section_file(path, [(5, metadata, ""), (6, compressed(bytes_tokenizer()), ""), (3, b"", "")])
    with litert_lm.Engine(path) as engine, pytest.raises(ModelError, match="the file says that its model calls no"):
        engine.create_conversation(tools=[add])


def test_sessions_of_litert_lm(path: Path) -> None:
    with litert_lm.Engine(path) as engine, engine.create_session() as session:
        session.run_prefill(["<user>H", "i</s><assistant>"])
        scores = session.run_text_scoring(["Hello.", "Hxllo."], store_token_lengths=True)
        assert scores.scores[0] > scores.scores[1] and scores.token_lengths == [len(s) for s in scores.token_scores]
        assert session.run_decode().texts == ["Hello."]
        session.run_prefill(["More</s><assistant>"])
        assert "".join(r.texts[0] for r in session.run_decode_async()) == "<think>Is it </think>Well."


@pytest.mark.parametrize(
    ("marks", "text", "calls"),
    [
        (CallMarks("<c>", "</c>"), 'a<c>[{"name": "f", "arguments": "{\\"x\\": 1}"}]</c>b', [("f", {"x": 1})]),
        (CallMarks("<", ">"), '<{"name": "f", "parameters": {}}><{"name": "g"}>', [("f", {}), ("g", {})]),
        (CallMarks("```tool_code\n", "\n```", "python"), "```tool_code\nprint(f(x='a', y=[1, None]))\ng()\n```",
         [("f", {"x": "a", "y": [1, None]}), ("g", {})]),
        (CallMarks("<|", "|>", "python"), "<|[f(x=-1), a.b(y=True)]|>", [("f", {"x": -1}), ("a.b", {"y": True})]),
        (CallMarks("<s>", "<e>", "fc", ("<q>", "<q>")), "<s>call:f{x:<q>a: {b}, call:g{}<q>,y:{z:[1,true]}}<e>",
         [("f", {"x": "a: {b}, call:g{}", "y": {"z": [1, True]}})]),
        (CallMarks("<c>", "</c>"), '<c>{"name": "f", "arguments": {"x": 2}}', [("f", {"x": 2})]),
    ],
)  # fmt: skip
def test_calls_of_functions(marks: CallMarks, text: str, calls: list[tuple[str, Mapping[str, Any]]]) -> None:
    said, found = parted(text, marks)
    assert found == [FunctionCall(*call) for call in calls]
    assert said == ("ab" if text[0] == "a" else "")


def test_calls_that_cannot_be_read() -> None:
    for syntax, text in [("json", "{"), ("json", "3"), ("python", "f(1)"), ("python", "f(x=g())"), ("fc", "f{}")]:
        with pytest.raises(ValueError, match="the model's call of a function cannot be read"):
            parted(f"<c>{text}</c>", CallMarks("<c>", "</c>", syntax))


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "data", [tokenizer_data(bytes_tokenizer()), tokenizer_data(pieces_tokenizer(200))], ids=["bpe", "pieces"]
)
def test_constrained_answers(data: TokenizerData) -> None:
    """Whatever scores a model gives, and whichever tokens are drawn."""
    tokenizer, end = load_tokenizer(data), 1
    grammars = Grammars(data, [(end,)])
    for seed in range(12):
        draw = np.random.default_rng(seed)
        for constraint in (grammars.json(SCHEMA), grammars.regex("[ab]{2}(c|d)e?"), grammars.lark('start: "ac" "b"+')):
            sampler, tokens = Sampler(Sampling(temperature=2.0, seed=seed), constraint), list[int]()
            while not constraint.is_over and len(tokens) < 90:
                tokens.append(sampler.choose(draw.standard_normal(200), len(tokens)))
            text = tokenizer.decode([token for token in tokens if token != end]).strip()
            if text.startswith("{") and len(tokens) < 90:
                jsonschema.validate(json.loads(text), SCHEMA)
            elif len(tokens) < 90:
                assert re.fullmatch("[ab]{2}(c|d)e?|acb+", text)


def test_constraints_that_cannot_be(path: Path) -> None:
    grammars = Engine(path).grammars
    for make, given in ((grammars.json, {"type": "none"}), (grammars.regex, "("), (grammars.lark, "start: nothing")):
        with pytest.raises(ValueError, match="is not valid"):
            make(given)  # type: ignore[operator]
    with pytest.raises(ValueError, match="needs a token that ends an answer"):
        Grammars(tokenizer_data(bytes_tokenizer()), [(3, 4)])
    form = litert_lm.ResponseFormat.regex("Hell[aeiou]!")
    with litert_lm.Engine(path) as engine, engine.create_conversation() as conversation:
        assert str(conversation.send_message("Hi", response_format=form)) == "Hello!"
