"""``tflgpu chat``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

import tflgpu
from tflgpu.cli.arguments import LanguageFile, Stops, Tokenizer, with_options
from tflgpu.cli.commands.generate import write_piece
from tflgpu.cli.console import console, note
from tflgpu.cli.terminal.progress import progress
from tflgpu.language import Conversation, Engine, Sampling


@with_options("device", "precision", "executor", "tuning", "cache", "cache_dir")
def chat_with_model(
    model: LanguageFile,
    options: tflgpu.Options,
    tokenizer: Tokenizer = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="How the model shall answer.", show_default="nothing")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="How many tokens an answer may have.", show_default="as the cache has room for"),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="Divide the logits by it before a token is drawn.", show_default="as the file says"),
    ] = None,
    stop: Stops = None,
) -> None:
    """Talk with a language model: each line of stdin is a message, until its end.

    Ctrl-C ends an answer that is coming, and otherwise the conversation. The model reads only what is new.
    """
    sampling = None if temperature is None else Sampling(temperature=temperature)
    with progress(f"compiling {model.name}"):
        engine = Engine(model, options, tokenizer=tokenizer, stops=stop or ())
    first = [] if system is None else [{"role": "system", "content": system}]
    with engine, Conversation(engine, messages=first) as conversation:
        for message in _messages():
            reply = conversation.stream(message, max_tokens=max_tokens, sampling=sampling)
            try:
                for part in reply:
                    if part.channel is None:
                        write_piece(part.text)
            except KeyboardInterrupt:
                reply.close()
            write_piece("\n")
            if reply.answer.statistics.end == "cache":
                note("the conversation has no room for more: begin another one")
                return


def _messages() -> Iterator[str]:
    """Yield what the user says. A terminal asks for it."""
    while True:
        if console.is_terminal and sys.stdin.isatty():
            try:
                line = console.input("> ")
            except EOFError:
                return
        else:
            line = sys.stdin.readline()
            if not line:
                return
        if line.strip():
            yield line.rstrip("\n")
