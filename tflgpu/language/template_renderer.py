"""Renders a file's prompt template; as a program, one request from its standard input, with limits.

A chat template is untrusted code from the model file. The sandbox keeps it from this process's objects, but one
expression, such as a power of large numbers, may take hours or all memory. As a program this file imports nothing of
tflgpu.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

# Of the program: seconds of the processor's time and bytes of address space. Real templates take a few milliseconds.
SECONDS, MEMORY = 2, 1 << 30

# Characters that a template may add to those that it is given.
LARGEST_ADDITION = 1 << 20


def render(template: str, variables: Mapping[str, Any]) -> str:
    """Return the text of a template, which may compute but reach nothing of this process. Raises anything, as
    programs do."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(reason: object) -> NoReturn:
        raise TemplateError(str(reason))

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(variables, raise_exception=refuse)


def reply(request: Mapping[str, Any]) -> dict[str, str]:
    """Render what a request asks for. The reply has the text or the error."""
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
