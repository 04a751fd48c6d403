"""Engine of LiteRT-LM, a language model that is ready to answer, and its sessions: texts without roles."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Self

import tflgpu
from tflgpu import language
from tflgpu.language import Answer, Sampling
from tflgpu.language.tokenizer import Tokenizer
from tflgpu.litert_lm.configs import (
    CPU,
    Backend,
    BenchmarkInfo,
    ConstrainedDecodingConfig,
    Responses,
    SamplerConfig,
    ThinkingConfig,
    benchmark_info,
)
from tflgpu.litert_lm.litert_lm_conversation import Conversation
from tflgpu.litert_lm.messages import Tool, ToolEventHandler


class Session:
    """One text that grows by what is read and answered. A context manager."""

    def __init__(
        self,
        engine: language.Engine,
        seconds: float,
        has_template: bool,
        sampling: Sampling | None,
        max_tokens: int | None,
    ) -> None:
        """Take an engine that was ready after ``seconds``, and how it answers."""
        self._engine, self._seconds, self._has_template = engine, seconds, has_template
        self._sampling, self._max_tokens = sampling, max_tokens
        self._session = engine.session()
        self._tokens: list[int] = []
        self._is_turn_open = False  # whether the user says something
        self._answer: Answer | None = None

    def run_prefill(self, contents: Sequence[str]) -> None:
        """Read what a user says. Further calls go on with it.

        Args:
            contents: Texts.

        Raises:
            ValueError: The text is longer than the cache.
            BusyError: An answer is not over.
            DeviceError: The device fails.
        """
        text = "".join(contents)
        if self._has_template and not self._is_turn_open:
            text = self._engine.file.metadata.user.prefix + text
        self._is_turn_open = True
        self._add(text)
        self._session.read(self._tokens)

    def run_decode(self) -> Responses:
        """Return the answer to all that was read.

        Raises:
            ValueError: Nothing was read.
            BusyError: An answer is not over.
            DeviceError: The device fails.
        """
        return Responses(texts=["".join(self._pieces())])

    def run_decode_async(self) -> Iterator[Responses]:
        """Yield the pieces of the answer to all that was read. Raises what :meth:`run_decode` does."""
        for piece in self._pieces():
            yield Responses(texts=[piece])

    def run_text_scoring(self, target_text: Sequence[str], store_token_lengths: bool = False) -> Responses:
        """Return how likely the model holds texts after what was read, each by itself.

        Args:
            target_text: The texts.
            store_token_lengths: Whether the result has the number of their tokens.

        Raises:
            ValueError: Nothing was read, or a text is longer than the cache.
            BusyError: An answer is not over.
            DeviceError: The device fails.
        """
        found = Responses(texts=list(target_text))
        for text in target_text:
            tokens = self._engine.tokenizer.encode(text)
            scores = self._session.score(self._tokens, tokens)
            found.token_scores.append(scores)
            found.scores.append(math.fsum(scores))
            if store_token_lengths:
                found.token_lengths.append(len(tokens))
        return found

    def get_benchmark_info(self) -> BenchmarkInfo:
        """Return the times of the last answer. Raises RuntimeError without one."""
        return benchmark_info(self._seconds, None if self._answer is None else self._answer.statistics)

    def cancel_process(self) -> None:
        """End the answer that is under way; from another thread, too."""
        if self._answer is not None:
            self._answer.close()

    def close(self) -> None:
        """Release the memory of the cache."""
        self._session.close()

    def _pieces(self) -> Iterator[str]:
        metadata = self._engine.file.metadata
        if self._has_template and self._is_turn_open:
            self._add(metadata.user.suffix + metadata.model.prefix)
        self._is_turn_open = False
        wish = self._engine.wish(sampling=self._sampling, max_tokens=self._max_tokens)
        answer = self._answer = self._session.answer(self._tokens, wish)
        yield from answer
        self._tokens = [*answer.prompt, *answer.told]
        if self._has_template:
            self._add(metadata.model.suffix)

    def _add(self, text: str) -> None:
        if not text and self._tokens:
            return
        tokens = self._engine.tokenizer.encode(text)
        self._tokens = [*(self._tokens or self._engine.start), *tokens]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine:
    """A language model that is ready to answer, for any number of conversations and sessions. A context manager."""

    def __init__(
        self,
        model_path: str | PathLike[str],
        backend: Backend | type[Backend] | None = None,
        max_num_tokens: int | None = None,
        cache_dir: str | None = None,
        *,
        options: tflgpu.Options | None = None,
        tokenizer: str | PathLike[str] | Tokenizer | None = None,
        **unsupported: object,
    ) -> None:
        """Open a file and compile its model.

        Args:
            model_path: A .litertlm, .task or .tflite file.
            backend: The kind of device; by default the best one that there is.
            max_num_tokens: How many tokens a conversation may have; by default as the file says.
            cache_dir: The directory of the disk cache.
            options: Of tflgpu, in place of ``backend`` and ``cache_dir``.
            tokenizer: In place of the file's own one.
            **unsupported: LiteRT-LM's other settings, which may be None or False.

        Raises:
            ModelError: As of :class:`tflgpu.language.Engine`.
            ValueError: A setting is not supported; or as of :class:`tflgpu.language.Engine`.
            DeviceError: There is no fitting device.
            BuildError: The device's compiler fails.
            OSError: A file cannot be read.
        """
        begin = time.perf_counter()
        refuse("Engine", unsupported)
        self.model_path, self.cache_dir = str(model_path), cache_dir
        self.backend = backend() if isinstance(backend, type) else backend
        self._engine = language.Engine(model_path, options or self._options(), tokenizer=tokenizer)
        if max_num_tokens is not None:
            self._engine.room = min(self._engine.room, max_num_tokens)
        self._seconds = time.perf_counter() - begin

    def _options(self) -> tflgpu.Options:
        files = tflgpu.CacheFiles(path=self.cache_dir) if self.cache_dir is not None else tflgpu.CacheFiles()
        if self.backend is None:
            return tflgpu.Options(cache_files=files)
        threads = self.backend.thread_count if isinstance(self.backend, CPU) else None
        return tflgpu.Options(device=self.backend.get_name(), threads=threads, cache_files=files)

    @property
    def bos_token_id(self) -> int | None:
        """The token before every text; None if there is none."""
        return next(iter(self._engine.start), None)

    @property
    def eos_token_ids(self) -> list[list[int]]:
        """The ends of an answer, each of one or several tokens."""
        return [list(stop) for stop in self._engine.stops]

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a text, without a start token.

        Args:
            text: No template is applied to it.
        """
        return self._engine.tokenizer.encode(text)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens.

        Args:
            token_ids: Tokens of the model's vocabulary.
        """
        return self._engine.tokenizer.decode(token_ids)

    def create_conversation(
        self,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Callable[..., Any] | Tool] | None = None,
        tool_event_handler: ToolEventHandler | None = None,
        automatic_tool_calling: bool = True,
        extra_context: Mapping[str, Any] | None = None,
        thinking_config: ThinkingConfig | None = None,
        sampler_config: SamplerConfig | None = None,
        system_message: str | None = None,
        constrained_decoding_config: ConstrainedDecodingConfig | None = None,
        max_output_tokens: int | None = None,
        chat_template: str | None = None,
        **unsupported: object,
    ) -> Conversation:
        """Begin a conversation.

        Args:
            messages: Those that come first.
            tools: Functions that the model may call.
            tool_event_handler: Decides about calls.
            automatic_tool_calling: Whether calls are made here; otherwise the reply has them.
            extra_context: Variables of the template.
            thinking_config: Whether the model thinks.
            sampler_config: How tokens are chosen; by default as the file says.
            system_message: The first message, of the role ``system``.
            constrained_decoding_config: Without effect: answers may always be constrained.
            max_output_tokens: The largest number of tokens of a reply.
            chat_template: A template of Jinja in place of the file's own one.
            **unsupported: LiteRT-LM's other settings, which may be None or False.

        Raises:
            ModelError: The file's calls of functions have a syntax that is not known.
            ValueError: A setting is not supported, a tool's description has no name, or the engine is closed.
        """
        refuse("create_conversation", unsupported)
        return Conversation(
            self._engine,
            self._seconds,
            messages=[*([{"role": "system", "content": system_message}] if system_message else ()), *(messages or ())],
            tools=tools or (),
            handler=tool_event_handler,
            calls_tools=automatic_tool_calling,
            context=dict(extra_context or {}),
            thinking=thinking_config,
            sampling=None if sampler_config is None else sampler_config.sampling(),
            max_tokens=max_output_tokens,
            template=chat_template,
        )

    def create_session(
        self,
        *,
        apply_prompt_template: bool = True,
        sampler_config: SamplerConfig | None = None,
        max_output_tokens: int | None = None,
        **unsupported: object,
    ) -> Session:
        """Begin a session: one text, without roles.

        Args:
            apply_prompt_template: Whether to put the file's text around what a user says.
            sampler_config: How tokens are chosen; by default as the file says.
            max_output_tokens: The largest number of tokens of an answer.
            **unsupported: LiteRT-LM's other settings, which may be None or False.

        Raises:
            ValueError: A setting is not supported, or the engine is closed.
        """
        refuse("create_session", unsupported)
        sampling = None if sampler_config is None else sampler_config.sampling()
        return Session(self._engine, self._seconds, apply_prompt_template, sampling, max_output_tokens)

    def close(self) -> None:
        """Release the device's memory."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refuse(call: str, settings: Mapping[str, object]) -> None:
    """Accept settings only if they have no value.

    Args:
        call: The function's name, for the message.
        settings: Values by name. None and False are no values.

    Raises:
        ValueError: One has a value.
    """
    given = [name for name, value in settings.items() if value not in (None, False)]
    if given:
        raise ValueError(f"{call} has the settings {', '.join(given)}, which tflgpu does not support")
