"""Conversation of LiteRT-LM: messages in turn, and functions that the model may call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from tflgpu import language
from tflgpu.language import Reply, Sampling
from tflgpu.language.grammars import TokenConstraint
from tflgpu.litert_lm.configs import (
    BenchmarkInfo,
    RepetitionPenaltyConfig,
    ResponseFormat,
    SuppressTokensConfig,
    ThinkingConfig,
    benchmark_info,
    changed,
)
from tflgpu.litert_lm.messages import Contents, Message, Tool, ToolEventHandler, as_message, tool_from_function

Said = str | Contents | Mapping[str, Any]


class Conversation:
    """Messages in turn. A context manager. Made by :meth:`Engine.create_conversation`."""

    def __init__(
        self,
        engine: language.Engine,
        seconds: float,
        *,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Callable[..., Any] | Tool],
        handler: ToolEventHandler | None,
        calls_tools: bool,
        context: dict[str, Any],
        thinking: ThinkingConfig | None,
        sampling: Sampling | None,
        max_tokens: int | None,
        template: str | None,
    ) -> None:
        """Take an engine that was ready after ``seconds``, and how it answers."""
        made = [tool if isinstance(tool, Tool) else tool_from_function(tool) for tool in tools]
        described = [tool.get_tool_description() for tool in made]
        for description in described:
            if not description.get("function", {}).get("name"):
                raise ValueError(f"the description of a tool has no name: {description!r}")
        self._tools = {d["function"]["name"]: tool for d, tool in zip(described, made, strict=True)}
        self._handler, self.automatic_tool_calling, self._seconds = handler, calls_tools, seconds
        self._sampling, self._max_tokens = sampling, max_tokens
        if thinking is not None:
            context["enable_thinking"] = thinking.enable_thinking
        self._engine = engine
        self._conversation = language.Conversation(
            engine, messages=messages, tools=described or None, context=context, template=template
        )
        self._reply: Reply | None = None

    def send_message(
        self,
        message: Said,
        *,
        repetition_penalty_config: RepetitionPenaltyConfig | None = None,
        suppress_tokens_config: SuppressTokensConfig | None = None,
        max_output_tokens: int | None = None,
        response_format: ResponseFormat | None = None,
    ) -> Message:
        """Say something, and return the reply. Functions that the model calls are called first.

        Args:
            message: A text of a user, contents, or a message with its role.
            repetition_penalty_config: Penalties for tokens that the reply has.
            suppress_tokens_config: Tokens that are never chosen.
            max_output_tokens: The largest number of tokens of the reply.
            response_format: What the reply has to be.

        Returns:
            The reply.

        Raises:
            ValueError: The conversation is longer than the cache, or a value cannot be.
            BusyError: A reply is not over.
            ModelError: The template fails.
            DeviceError: The device fails.
        """
        wish = self._wish(repetition_penalty_config, suppress_tokens_config, max_output_tokens)
        for reply in self._replies(message, wish, response_format):
            for _ in reply:
                pass
        return _as_reply(reply.message)

    def send_message_async(
        self,
        message: Said,
        *,
        repetition_penalty_config: RepetitionPenaltyConfig | None = None,
        suppress_tokens_config: SuppressTokensConfig | None = None,
        max_output_tokens: int | None = None,
        response_format: ResponseFormat | None = None,
    ) -> Iterator[Message]:
        """Say something, and yield the reply in pieces: messages with some text, or some of a channel.

        Functions that the model calls are called in between; without ``automatic_tool_calling`` the last piece has
        the calls.

        Args:
            message: As of :meth:`send_message`.
            repetition_penalty_config: As of :meth:`send_message`.
            suppress_tokens_config: As of :meth:`send_message`.
            max_output_tokens: As of :meth:`send_message`.
            response_format: As of :meth:`send_message`.

        Yields:
            Messages.

        Raises:
            ValueError: As of :meth:`send_message`.
            BusyError: As of :meth:`send_message`.
            ModelError: As of :meth:`send_message`.
            DeviceError: As of :meth:`send_message`.
        """
        wish = self._wish(repetition_penalty_config, suppress_tokens_config, max_output_tokens)
        for reply in self._replies(message, wish, response_format):
            for text, channel in reply:
                yield Message.model(Contents.of(text)) if channel is None else Message.model(channels={channel: text})
        if calls := reply.message.get("tool_calls"):
            yield Message.from_json({"role": "assistant", "content": [], "tool_calls": calls})

    def render_message_to_string(self, message: Said) -> str:
        """Return the text that the model reads for a message, with all before it.

        Args:
            message: As of :meth:`send_message`.

        Raises:
            ModelError: The template fails.
        """
        return self._conversation.written(as_message(message))

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """All messages so far."""
        return list(self._conversation.messages)

    @property
    def token_count(self) -> int:
        """How many tokens the cache has."""
        return self._conversation.token_count

    def get_benchmark_info(self) -> BenchmarkInfo:
        """Return the times of the last reply. Raises RuntimeError without one."""
        return benchmark_info(self._seconds, None if self._reply is None else self._reply.answer.statistics)

    def cancel_process(self) -> None:
        """End the reply that is under way; from another thread, too. It does not join the conversation."""
        if self._reply is not None:
            self._reply.close()

    def close(self) -> None:
        """Release the memory of the cache."""
        self._conversation.close()

    def _wish(
        self,
        penalties: RepetitionPenaltyConfig | None,
        suppressed: SuppressTokensConfig | None,
        max_tokens: int | None,
    ) -> dict[str, Any]:
        sampling = changed(self._sampling, self._engine.sampling(), penalties, suppressed)
        return {"sampling": sampling, "max_tokens": max_tokens or self._max_tokens}

    def _replies(self, message: Said, wish: dict[str, Any], form: ResponseFormat | None) -> Iterator[Reply]:
        """Yield a reply, and after calls of functions the next one. The caller reads each to its end."""
        said: Any = as_message(message)
        while True:
            # The first answer may be a call of a function, which has a form of its own.
            is_free = form is None or (self._tools and self.automatic_tool_calling and not isinstance(said, list))
            constraint = None if is_free else self._constraint(form)
            self._reply = self._conversation.stream(said, constraint=constraint, **wish)
            yield self._reply
            calls = self._reply.message.get("tool_calls")
            if not calls or not self.automatic_tool_calling:
                return
            results = [result for call in calls if (result := self._called(call)) is not None]
            if not results:
                return
            said = results

    def _constraint(self, form: ResponseFormat | None) -> TokenConstraint | None:
        if form is None or form.type == ResponseFormat.Type.NONE:
            return None
        grammars = self._engine.grammars
        make = grammars.regex if form.type == ResponseFormat.Type.REGEX else grammars.json
        return make(form.schema_or_pattern)

    def _called(self, call: dict[str, Any]) -> Mapping[str, Any] | None:
        """Return the message with a function's result; None for a call that is not approved."""
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if self._handler is not None and not self._handler.approve_tool_call(call):
            return None
        try:
            result = self._tools[name].execute(arguments) if name in self._tools else f"Error: no tool {name!r}"
        except Exception as error:  # the model sees it, as it sees a result
            result = f"Error: {error}"
        if self._handler is not None:
            result = self._handler.process_tool_response(result)
        content = [{"type": "tool_response", "name": name, "response": result}]
        return {"role": "tool", "name": name, "content": content}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_reply(message: Mapping[str, Any]) -> Message:
    """Return a reply with its text as a part, as LiteRT-LM has it."""
    text = message.get("content", "")
    return Message.from_json({**message, "content": [{"type": "text", "text": text}] if text else []})
