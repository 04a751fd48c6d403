"""The arguments that several verbs share, and packages that a verb needs and not everybody has installed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import tflgpu
from tflgpu.checking.option_declarations import choices_of, flat_names
from tflgpu.errors import install_command
from tflgpu.inputs.input_reader import InputReader, input_files
from tflgpu.options import Options, options_of

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A .tflite file.", show_default=False)]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

Mean = Annotated[
    float | None,
    typer.Option(
        help="Pixels 0..255 become (pixel - mean) / std.",
        show_default="as the model's metadata say; else 8-bit inputs take pixels as they are, others -1..1",
    ),
]

Std = Annotated[
    float | None, typer.Option(help="See --mean; --mean 0 --std 255 gives 0..1.", show_default="as for --mean")
]

Workers = Annotated[int, typer.Option(min=1, help="Processes with a device each; more than one need Ray.")]

Address = Annotated[
    str | None,
    typer.Option(metavar="URL", help="A cluster of Ray, such as ray://host:10001.", show_default="this machine"),
]

LanguageFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A .litertlm, .task or .tflite file.", show_default=False)
]

Tokenizer = Annotated[
    Path | None, typer.Option(help="A file of sentencepiece or tokenizers.", show_default="the file's own")
]

Stops = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="A token that ends an answer.", show_default="those of the file"),
]

# Values that a shell offers for options whose type does not name them.
COMPLETIONS: Mapping[str, Callable[[], list[str]]] = {"device": lambda: ["auto", "cpu", "gpu"]}


def option_flag(name: str) -> Any:
    """How the command line has an option of :class:`tflgpu.Options`. name: its flat name."""
    place = flat_names(Options)[name]
    declared = place.declared
    absent = declared.absent if not place.default else None
    return typer.Option(
        f"--{name.replace('_', '-')}",
        help=f"{declared.help} {declared.command}" if isinstance(declared.command, str) else declared.help,
        metavar=declared.metavar,
        min=getattr(declared.check, "least", None),
        show_default=absent or True,
        autocompletion=COMPLETIONS.get(name),
    )


CacheDirs = Annotated[list[Path] | None, option_flag("cache_dir")]

# The types of options that the command line has in another form than Python.
FORMS: Mapping[str, Any] = {
    "device": str,
    "outputs": list[str] | None,
    "calibration": Path | None,
    "cpu_ops": list[str] | None,
    "cache_dir": list[Path] | None,
}

# The options of the command line by their flat names, as parameters of a function.
PARAMETERS: Mapping[str, inspect.Parameter] = {
    name: inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=place.default or None if name in FORMS else place.default,
        annotation=Annotated[FORMS.get(name, place.field.type), option_flag(name)],
    )
    for name, place in flat_names(Options).items()
    if place.declared.command
}

# The choices of options as `tflgpu.Options` has them, by their spelling with hyphens.
CHOICES: Mapping[str, str] = {
    choice.replace("_", "-"): choice for place in flat_names(Options).values() for choice in choices_of(place.field)
}


def normal_word(word: str) -> str:
    """Return a verb or an option with hyphens, a choice as ``tflgpu.Options`` spells it; either takes the other
    spelling.

    TFLite's tools spell options with underscores.
    """
    hyphenated = word.replace("_", "-")
    return CHOICES.get(hyphenated, hyphenated)


def compile_options(model: Path | None, given: Mapping[str, Any]) -> Options:
    """Return the options that a command line gives. given: values of :data:`PARAMETERS`."""
    flat = {name: value for name, value in given.items() if value is not None}
    if "cpu_ops" in flat:
        flat["cpu_ops"] = _operators(flat["cpu_ops"])
    if (folder := flat.pop("calibration", None)) is not None and model is not None:
        interface = {name: value for name, value in flat.items() if name in ("signature", "batch")}
        flat["calibration"] = _calibration(model, folder, options_of(interface))
    return options_of(flat)


def _calibration(model: Path, folder: Path, options: Options) -> list[Any]:
    """Return what the files of a folder are for the model's inputs."""
    reader = InputReader(model, tflgpu.inspect(model, options).model.inputs)
    return [reader.read([path]) for path in input_files(folder)]


def _operators(listed: Sequence[str]) -> list[str | int | range]:
    """``["SOFTMAX,12", "60-65"]`` as ``Options.cpu_part.operators`` takes it; both ends of a range belong to it."""
    operators: list[str | int | range] = []
    for word in (word.strip() for text in listed for word in text.split(",")):
        if numbers := re.fullmatch(r"(\d+)(?:-(\d+))?", word):
            first, last = numbers.groups()
            operators.append(int(first) if last is None else range(int(first), int(last) + 1))
        else:
            operators.append(word)
    return operators


def with_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a verb as the command line sees it: with options of :class:`tflgpu.Options` in place of ``options``.

    names: the flat names of the options that the verb has; without any it has all of :data:`PARAMETERS`.
    """
    shared = {name: PARAMETERS[name] for name in names or PARAMETERS}

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(verb, eval_str=True).parameters)
        last = [own.pop("as_json")] if "as_json" in own else []
        del own["options"]
        parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*own.values(), *shared.values(), *last)]

        @wraps(verb)
        def called(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in shared}
            verb(**arguments, options=compile_options(arguments.get("model"), given))

        # Which Typer reads.
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in parameters}
        return called

    return decorate


# Packages, and the extras that bring them.
EXTRAS = {"pyarrow": "predict", "ray": "ray", "fastapi": "openai", "uvicorn": "openai", "prometheus_client": "openai"}


@contextmanager
def naming_extras() -> Iterator[None]:
    """Raise ValueError, with what to install, for a package that is missing and that an extra brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise ValueError(f"this needs the package {error.name}; install it with {install_command(extra)}") from error
