"""The server, with OpenAI's own client: whole answers, streams, functions, JSON, errors, many at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
import uvicorn

from tests.language.talking_models import talking_file
from tflgpu.language import Engine
from tflgpu.openai_server import create_app

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    app = create_app(Engine(talking_file(tmp_path / "toy.litertlm", monkeypatch)), sessions=3)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_the_openai_client(address: str) -> None:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["toy"]
        assert client.models.retrieve("toy").owned_by == "tflgpu"
        chats = client.chat.completions
        reply = chats.create(model="toy", messages=said("Hi"), logprobs=True, top_logprobs=2)
        choice = reply.choices[0]
        assert (choice.message.content, choice.finish_reason) == ("Hello.", "stop")
        assert len(choice.logprobs.content) == reply.usage.completion_tokens
        assert len(choice.logprobs.content[0].top_logprobs) == 2
        cut = chats.create(model="toy", messages=said("Hi"), max_completion_tokens=2)
        assert cut.choices[0].finish_reason == "length" and cut.usage.prompt_tokens_details.cached_tokens > 8
        assert chats.create(model="toy", messages=said("Hi"), stop="lo").choices[0].message.content == "Hel"
        thought = chats.create(model="toy", messages=said("More")).choices[0].message
        assert (thought.content, thought.reasoning_content) == ("Well.", "Is it ")

        chunks = list(
            chats.create(model="toy", messages=said("Hi"), stream=True, stream_options={"include_usage": True})
        )
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello."
        assert chunks[-1].usage.completion_tokens > 3 and chunks[-2].choices[0].finish_reason == "stop"

        question = said("What is 2 + 3?")
        asked = chats.create(model="toy", messages=question, tools=TOOLS)
        (call,) = asked.choices[0].message.tool_calls
        assert (asked.choices[0].finish_reason, call.function.name) == ("tool_calls", "add")
        assert json.loads(call.function.arguments) == {"a": 2, "b": 3}
        result = {"role": "tool", "tool_call_id": call.id, "content": "5"}
        final = chats.create(model="toy", messages=[*question, asked.choices[0].message, result], tools=TOOLS)
        assert final.choices[0].message.content == "It is 5."
        streamed = list(chats.create(model="toy", messages=question, tools=TOOLS, stream=True))
        assert [d.function.name for c in streamed for d in c.choices[0].delta.tool_calls or ()] == ["add"]

        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema | {"additionalProperties": False}}}
        made = chats.create(model="toy", messages=said("Hi"), response_format=form, max_tokens=60)
        assert json.loads(made.choices[0].message.content)["a"] in (1, 2)

        text = client.completions.create(model="toy", prompt="<user>Hi</s><assistant>", logprobs=1)
        assert text.choices[0].text == "Hello." and "".join(text.choices[0].logprobs.tokens[:-1]) == "Hello."
        pieces = client.completions.create(model="toy", prompt="<user>Hi</s><assistant>", stream=True)
        assert "".join(piece.choices[0].text for piece in pieces) == "Hello."


def test_wrong_requests(address: str) -> None:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        rows = [
            ({"messages": said("x" * 900)}, "and the model has room for 700"),
            ({"messages": said("Hi"), "temperature": -1}, "temperature is -1"),
            ({"messages": said("Hi"), "n": 2}, "n: Input should be 1"),
            ({"messages": said("Hi"), "extra_body": {"best": 1}}, "best: Extra inputs are not permitted"),
            ({"messages": said("Hi"), "response_format": {"type": "xml"}}, "json_schema with its schema was expected"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only texts are supported"),
        ]
        for given, match in rows:
            with pytest.raises(openai.BadRequestError, match=match):
                client.chat.completions.create(model="toy", **given)  # type: ignore[call-overload]
        with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
            client.models.retrieve("other")


def test_many_at_once_and_one_that_leaves(address: str) -> None:
    def ask(number: int) -> str:
        request = {"prompt": f"<user>{['Hi', 'More'][number % 2]}</s><assistant>", "max_tokens": 40}
        if number == 5:
            stream = request | {"stream": True}
            with httpx.stream("POST", f"{address}/v1/completions", json=stream, timeout=60) as answer:
                return next(answer.iter_text())
        answered = httpx.post(f"{address}/v1/completions", json=request, timeout=60)
        return str(answered.json()["choices"][0]["text"])

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(16)))
    assert answers[5].startswith("data: ")
    assert {answer for place, answer in enumerate(answers) if place != 5} == {
        "Hello.",
        "<think>Is it </think>Well.",
    }
    assert httpx.get(f"{address}/health").json()["busy_sessions"] == 0
    counted = httpx.get(f"{address}/metrics").text
    assert 'tflgpu_requests_total{end="stop token"} 15.0' in counted
