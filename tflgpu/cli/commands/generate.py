"""``tflgpu generate``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import tflgpu
from tflgpu.cli.arguments import AsJson, LanguageFile, Tokenizer, with_options
from tflgpu.cli.console import console, note, picked, print_json
from tflgpu.cli.terminal.progress import progress
from tflgpu.language import Answer, Generator, Sampling, Statistics
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
