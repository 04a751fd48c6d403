"""Renders a file's prompt template; as a program, one request from its standard input, with limits.

A chat template is untrusted code from the model file. The sandbox keeps it from this process's objects, but one
expression, such as a power of large numbers, may take hours or all memory. As a program this file imports nothing of
tflgpu.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn

# Limits of the program: seconds of the processor's time and bytes of address space. Real templates take a few
# milliseconds.
SECONDS, MEMORY = 2, 1 << 30

# Characters that a template may add to those that it is given.
LARGEST_ADDITION = 1 << 20


def render(template: str, variables: Mapping[str, Any]) -> str:
    """Return the text of a template, which may compute but reach nothing of this process.

    Templates have what transformers documents: its tags ``break``, ``continue`` and ``generation``, its functions
    ``raise_exception`` and ``strftime_now``, ``tojson`` without escapes of HTML, and neither ``dict`` nor
    ``namespace`` with attributes of Python's own.

    Args:
        template: In the language of Jinja.
        variables: In types of JSON.

    Raises:
        Exception: A template is a program, which can fail with any error.
    """
    from jinja2 import TemplateError
    from jinja2.exceptions import SecurityError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    def refuse(reason: object) -> NoReturn:
        raise TemplateError(str(reason))

    def as_json(
        value: object,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    class PlainNamespace(Namespace):
        """A namespace of a template's own names."""

        def __init__(*args: Any, **kwargs: Any) -> None:
            self, given = args[0], dict(*args[1:], **kwargs)
            for name in given:
                check(name)
            Namespace.__init__(self, given)

        def __setitem__(self, name: str, value: object) -> None:
            check(name)
            super().__setitem__(name, value)

    def check(name: object) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace has no attribute {name!r}: it begins with an underscore")

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, generation_tag()]
    )
    environment.filters["tojson"] = as_json
    environment.globals.update(
        raise_exception=refuse,
        strftime_now=lambda form: datetime.now().strftime(form),
        dict=_PlainDict(),
        namespace=PlainNamespace,
    )
    return environment.from_string(template).render(variables)


class _PlainDict:
    """Makes dictionaries for templates, which see nothing else of ``dict``."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def generation_tag() -> type[Any]:
    """Return the extension of Jinja for ``{% generation %}``, which marks what a model says and adds nothing."""
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012 as Jinja has it

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

        def _said(self, caller: Callable[[], str]) -> str:
            return caller()

    return Generation


def reply(request: Mapping[str, Any]) -> dict[str, str]:
    """Render the template of a request.

    Args:
        request: Has ``template`` and ``variables``.

    Returns:
        The ``text``, or the ``error``.
    """
    try:
        text = render(request["template"], request["variables"])
    except MemoryError:
        return {"error": f"it takes more than {MEMORY} bytes of memory"}
    except Exception as error:  # templates are programs, which fail in any way
        return {"error": str(error) or type(error).__name__}
    longest = LARGEST_ADDITION + len(json.dumps(request["variables"]))
    if len(text) > longest:
        return {"error": f"it makes a text of {len(text)} characters, and at most {longest} were expected"}
    return {"text": text}


def _limit() -> None:
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limits
        import resource

        for kind, most in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_CPU, SECONDS),
            (resource.RLIMIT_AS, MEMORY),
        ):
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main() -> None:
    """Answer the one request."""
    request = json.load(sys.stdin.buffer)
    _limit()
    sys.stdout.write(json.dumps(reply(request)))


if __name__ == "__main__":
    main()
