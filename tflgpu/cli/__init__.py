"""The command line: ``tflgpu <verb>``.

The verbs import the compiler, Pillow and LiteRT inside functions: help and a warm start need none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import tflgpu
from tflgpu.cli.arguments import normal_word
from tflgpu.cli.commands.benchmark import benchmark_model
from tflgpu.cli.commands.cache import cache_app
from tflgpu.cli.commands.demo import run_demo
from tflgpu.cli.commands.devices import list_devices
from tflgpu.cli.commands.diff import diff_model
from tflgpu.cli.commands.evaluate import evaluate_app
from tflgpu.cli.commands.generate import chat_with_model, generate_text, serve_model
from tflgpu.cli.commands.inspect import inspect_model
from tflgpu.cli.commands.precompile import precompile_models
from tflgpu.cli.commands.predict import predict_rows
from tflgpu.cli.commands.profile import profile_model
from tflgpu.cli.commands.run import run_model
from tflgpu.cli.commands.show import show_model
from tflgpu.cli.console import console
from tflgpu.cli.usage import Quiet, Verbose, Verbs, as_verb, set_verbosity

__all__ = ["app"]

app = typer.Typer(
    name="tflgpu",
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"token_normalize_func": normal_word},
)

VERBS: dict[str, Callable[..., None]] = {
    "devices": list_devices,
    "inspect": inspect_model,
    "run": run_model,
    "predict": predict_rows,
    "generate": generate_text,
    "chat": chat_with_model,
    "serve": serve_model,
    "benchmark": benchmark_model,
    "profile": profile_model,
    "diff": diff_model,
    "show": show_model,
    "precompile-cache": precompile_models,
    "demo": run_demo,
}

for name, verb in VERBS.items():
    app.command(name)(as_verb(verb))
app.add_typer(evaluate_app, name="evaluate")
app.add_typer(cache_app, name="cache")


def _print_version(wanted: bool) -> None:
    if wanted:
        console.out(tflgpu.__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Run TensorFlow Lite models on any OpenCL device."""
    set_verbosity(verbose, quiet)
