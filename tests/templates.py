"""Which template files are kernels."""

from __future__ import annotations

import jinja2
import jinja2.meta

from tflgpu.codegen import template_folder

PRELUDE = "storage"


def kernel_templates() -> set[str]:
    """The names of all templates that no other one includes, and that are not what every program begins with."""
    environment = jinja2.Environment(trim_blocks=True)
    sources = {path.name.removesuffix(".cl.j2"): path.read_text() for path in template_folder().glob("*.cl.j2")}
    helpers = {
        name.removesuffix(".cl.j2")
        for source in sources.values()
        for name in jinja2.meta.find_referenced_templates(environment.parse(source))
        if name
    }
    return set(sources) - helpers - {PRELUDE}
