"""``tflgpu generate``, ``tflgpu chat`` and ``tflgpu serve``: language models."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

import tflgpu
from tflgpu.cli.arguments import AsJson, LanguageFile, Stops, Tokenizer, naming_extras, with_options
from tflgpu.cli.console import console, note, picked, print_json
from tflgpu.cli.progress import progress
from tflgpu.language import Answer, Conversation, Embedder, Engine, Generator, Sampling, Statistics
from tflgpu.model.text import printable_lines


@with_options("device", "precision", "executor", "tuning", "cache", "cache_dir")
def generate_text(
    model: LanguageFile,
    prompt: Annotated[
        str,
        typer.Argument(metavar="PROMPT", help="What to answer; - reads it from stdin.", show_default=False),
    ],
    options: tflgpu.Options,
    tokenizer: Tokenizer = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="How many tokens the answer may have.", show_default="as the cache has room for"),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Divide the logits by it before a token is drawn; 0 takes the most probable token.",
            show_default="as the file says",
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Draw among this many likeliest tokens.", show_default="all")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="The seed of the random numbers that draw tokens.", show_default="another each time"),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A token that ends the answer.", show_default="those of the file"),
    ] = None,
    template: Annotated[bool, typer.Option(help="Put the text around the prompt that the file has for that.")] = True,
    as_json: AsJson = False,
) -> None:
    """Answer a prompt with a language model, token by token.

    The text goes to stdout as it comes, and tokens a second to stderr at the end. Ctrl-C ends the answer;
    what was printed stays.
    """
    is_said = (temperature, top_k, seed) != (None, None, None)
    sampling = Sampling(temperature=temperature or 0.0, top_k=top_k, seed=seed) if is_said else None
    if prompt == "-":
        prompt = sys.stdin.read()
    with progress(f"compiling {model.name}"):
        generator = Generator(model, options, tokenizer=tokenizer, stops=stop or ())
        answer = generator.stream(prompt, max_tokens=max_tokens, sampling=sampling, template=template)
    with generator:
        if as_json:
            pieces: list[str] = []
            try:
                for piece in answer:
                    pieces.append(piece)
            except KeyboardInterrupt:
                _print_all(answer, pieces)
                raise
            _print_all(answer, pieces)
            return
        try:
            for piece in answer:
                write_piece(piece)
        finally:
            write_piece("\n")
            note(_summary(answer.statistics))


def write_piece(text: str) -> None:
    """Write a piece at once. A terminal would obey control characters of the text; a pipe gets it as it is.

    Characters that the encoding of stdout does not have become escapes.
    """
    file = console.file
    if console.is_terminal:
        text = "\t".join(map(printable_lines, text.split("\t")))
    encoding = getattr(file, "encoding", None) or "utf-8"
    file.write(text.encode(encoding, "backslashreplace").decode(encoding))
    file.flush()


def _print_all(answer: Answer, pieces: Sequence[str]) -> None:
    taken = answer.statistics
    print_json(
        {
            "text": "".join(pieces),
            "tokens": answer.tokens,
            **picked(taken, "end", "prompt_tokens", "prefill_seconds", "decode_seconds"),
        }
    )


def _summary(taken: Statistics) -> str:
    parts = [f"{taken.prompt_tokens} tokens of prompt ({taken.prefill_rate:.0f} a second)"]
    parts.append(f"{taken.new_tokens} of answer ({taken.decode_rate:.1f} a second)")
    ends = {
        "stop token": "it ended with a stop token",
        "max tokens": "it ended at --max-tokens",
        "cache": "it ended because the cache is full",
        "left": "it was interrupted",
    }
    return f"{', '.join(parts)}; {ends[taken.end]}"


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


@with_options("device", "precision", "executor", "tuning", "cache", "cache_dir")
def serve_model(
    model: LanguageFile,
    options: tflgpu.Options,
    tokenizer: Tokenizer = None,
    stop: Stops = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen.")] = 8000,
    sessions: Annotated[int, typer.Option(min=1, help="How many requests to answer at a time.")] = 4,
    embeddings: Annotated[bool, typer.Option(help="Make vectors of texts with an encoder.")] = False,
    name: Annotated[str | None, typer.Option(help="The model's name.", show_default="that of the file")] = None,
) -> None:
    """Serve a language model with OpenAI's interface: chats and completions, or embeddings; health and metrics."""
    with naming_extras():
        import uvicorn

        from tflgpu.openai_server import create_app
    engine: Engine | Embedder
    with progress(f"compiling {model.name}"):
        if embeddings:
            engine = Embedder(model, options, tokenizer=tokenizer)
        else:
            engine = Engine(model, options, tokenizer=tokenizer, stops=stop or ())
        app = create_app(engine, name=name, sessions=sessions)
    note(f"http://{host}:{port}/v1 answers for {name or model.stem}")
    uvicorn.run(app, host=host, port=port, log_level="warning")
