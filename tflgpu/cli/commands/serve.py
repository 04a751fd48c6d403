"""``tflgpu serve``."""

from __future__ import annotations

from typing import Annotated

import typer

import tflgpu
from tflgpu.cli.arguments import LanguageFile, Stops, Tokenizer, with_options
from tflgpu.cli.console import note
from tflgpu.cli.extras import naming_extras
from tflgpu.cli.terminal.progress import progress
from tflgpu.language import Embedder, Engine


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
