"""A conversation: messages of several roles, of which the cache keeps what was read already."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tflgpu.errors import ModelError
from tflgpu.language.answer import Answer
from tflgpu.language.language_engine import Engine
from tflgpu.language.prompt import written
from tflgpu.language.reply_parts import Part, ReplyParts, call_marks
from tflgpu.language.sampling import Constraint, Sampling
from tflgpu.language.tokenizer import utf8_text

Message = Mapping[str, Any]


class Conversation:
    """Messages in turn, as a file's template writes them. A context manager.

    A reply is one more message. Before it only what is new is read: the cache keeps the beginning of the text that is
    the same. For one thread at a time; conversations of one engine may be used by threads of their own.

    Attributes:
        engine: What answers.
        messages: All so far: dictionaries with ``role`` and ``content``, as transformers has them. Replies are those
            of the role ``assistant``, with ``tool_calls`` and ``channels`` where they have some.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        messages: Sequence[Message] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        context: Mapping[str, Any] | None = None,
        template: str | None = None,
    ) -> None:
        """Begin a conversation.

        Args:
            engine: What answers. It stays the caller's.
            messages: Those that come first, such as one of the role ``system``.
            tools: Functions that the model may call, as JSON describes them for OpenAI's interface.
            context: Variables of the template, such as ``enable_thinking``.
            template: A template of Jinja in place of the file's own one.

        Raises:
            ModelError: The file's calls of functions have a syntax that is not known, or its model knows no functions.
            ValueError: The engine is closed.
            DeviceError: The device fails.
        """
        self.engine = engine
        self.messages: list[Message] = list(messages)
        metadata = engine.file.metadata
        self._metadata = metadata if template is None else replace(metadata, jinja_template=template)
        if tools and metadata.calls_functions is False:
            raise ModelError(f"{engine.file.path}: the file says that its model calls no functions")
        self._tools, self._context = tools, context
        self._marks = call_marks(metadata) if tools else None
        self._session = engine.session()
        self._text, self._tokens = "", list[int]()  # of the last turn, with its reply

    @property
    def token_count(self) -> int:
        """How many tokens the cache has."""
        return len(self._session.tokens)

    def written(self, message: str | Message | Sequence[Message]) -> str:
        """Return the text that the model reads for a message, with all before it.

        Args:
            message: As of :meth:`stream`.

        Raises:
            ModelError: The template fails.
            ValueError: The message has images or sounds.
            TypeError: The message is none.
        """
        said = [*self.messages, *_messages(message)]
        end = self.engine.end_text
        return written(self._metadata, said, tools=self._tools, context=self._context, end=end)

    def stream(
        self,
        message: str | Message | Sequence[Message],
        *,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        constraint: Constraint | None = None,
        likeliest: int | None = None,
    ) -> Reply:
        """Say something, and return the reply as it comes.

        Message and reply join the conversation when the reply has ended by itself; one that is closed or dropped
        leaves the conversation as it was.

        Args:
            message: What a user says; or a message with its role, or several, such as results of functions.
            max_tokens: As of :meth:`Engine.wish`.
            sampling: As of :meth:`Engine.wish`.
            stop: As of :meth:`Engine.wish`.
            constraint: As of :meth:`Engine.wish`.
            likeliest: As of :meth:`Engine.wish`.

        Returns:
            An iterator of parts of the reply, for ``for`` and ``async for``.

        Raises:
            ValueError: The conversation is longer than the cache, or a value cannot be.
            BusyError: A reply of this conversation is not over.
            TypeError: The message is none.
            ModelError: The template fails.
            UnsupportedError: An operator of a prefill signature cannot run on the device.
            BuildError: The device's compiler fails.
        """
        wish = self.engine.wish(
            sampling=sampling, max_tokens=max_tokens, stop=stop, constraint=constraint, likeliest=likeliest
        )
        new = _messages(message)
        text = self.written(new)
        answer = self._session.answer(self._tokens_of(text), wish)
        parts = ReplyParts(self._metadata.channels, self._marks)
        return Reply(answer, parts, lambda message, raw: self._join(new, message, text + raw, answer))

    def send(self, message: str | Message | Sequence[Message], **wish: Any) -> Message:
        """Say something, and return the reply as a message.

        Args:
            message: As of :meth:`stream`.
            **wish: As of :meth:`stream`.

        Returns:
            The reply.

        Raises:
            ValueError: As of :meth:`stream`.
            BusyError: As of :meth:`stream`.
            ModelError: As of :meth:`stream`.
            DeviceError: The device fails.
        """
        reply = self.stream(message, **wish)
        for _ in reply:
            pass
        return reply.message

    def copy(self) -> Conversation:
        """Return another conversation, which goes on from here by itself.

        Raises:
            BusyError: A reply of this conversation is not over.
            ValueError: The conversation is closed.
            DeviceError: The device fails.
        """
        other = object.__new__(Conversation)
        other.__dict__.update(self.__dict__)
        other.messages, other._tokens = list(self.messages), list(self._tokens)
        other._session = self._session.copy()
        return other

    def close(self) -> None:
        """Release the memory of the cache."""
        self._session.close()

    def _tokens_of(self, text: str) -> list[int]:
        """Return the tokens of a text. Those of the last turn stay where the text goes on from it.

        A model may have said its text in other tokens than the tokenizer would have.
        """
        whole = self.engine.encode(text)
        if not self._tokens or not text.startswith(self._text):
            return whole
        decode = self.engine.tokenizer.decode
        longer = [*self._tokens, *self.engine.tokenizer.encode(text[len(self._text) :])]
        return longer if decode(longer) == decode(whole) else whole

    def _join(self, new: Sequence[Message], reply: Message, text: str, answer: Answer) -> None:
        """Add a turn that is over."""
        self.messages += [*new, reply]
        self._text, self._tokens = text, [*answer.prompt, *answer.told]

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reply(Iterator[Part], AsyncIterator[Part]):
    """The reply of a model, part by part. Made by :meth:`Conversation.stream`.

    Attributes:
        answer: Its tokens, statistics and likelihoods.
    """

    def __init__(self, answer: Answer, parts: ReplyParts, join: Callable[[Message, str], None]) -> None:
        """Take the answer, what parts it, and what is done with message and text of one that ends by itself."""
        self.answer = answer
        self._split, self._join = parts, join
        self._raw, self._parts, self._is_over = "", deque[Part](), False

    @property
    def message(self) -> Message:
        """The reply so far, as a message."""
        return self._split.message()

    def __next__(self) -> Part:
        """Return the next part, whose text is never empty."""
        while not self._parts and not self._is_over:
            piece = next(self.answer, None)
            if piece is not None:
                self._raw += piece
                self._parts.extend(self._split.add(piece))
                continue
            self._is_over = True
            self._parts.extend(self._split.finish())
            if self.answer.statistics.end != "left":
                self._join(self.message, self._raw)
        if not self._parts:
            raise StopIteration
        return self._parts.popleft()

    async def __anext__(self) -> Part:
        """Return the next part, which a thread waits for."""
        try:
            part = await asyncio.to_thread(next, self, None)
        except asyncio.CancelledError:
            self.close()
            raise
        if part is None:
            raise StopAsyncIteration
        return part

    def close(self) -> None:
        """End the reply. It does not join the conversation."""
        self.answer.close()


def _messages(message: str | Message | Sequence[Message]) -> list[Message]:
    """Return messages. Raises TypeError for what is none."""
    if isinstance(message, str):
        return [{"role": "user", "content": utf8_text("the message", message)}]
    found = [message] if isinstance(message, Mapping) else message
    if not isinstance(found, Sequence) or not all(isinstance(each, Mapping) and "role" in each for each in found):
        raise TypeError(f"the message is {message!r}; a text, or dictionaries with 'role' and 'content' were expected")
    return list(found)
