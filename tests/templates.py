"""Which template files are kernels."""

from __future__ import annotations

import jinja2
import jinja2.meta

from tflgpu.codegen import template_folder

# What surrounds kernels: the prelude, and what makes one launch of them all.
SURROUNDINGS = {"storage", "storage_ptx", "matrix_units_ptx", "grid", "grid_ptx", "persistent"}
# Kernels with calls of NVIDIA's assembly, which test_matrix_units.py emulates.
NOT_PORTABLE = {
    "convolution_mma",
    "convolution_staged_mma",
    "convolution_taps_mma",
    "pointwise_depthwise_mma",
    "depthwise_pointwise_mma",
    "pointwise_mean_mma",
}


def kernel_templates() -> set[str]:
    """The names of all templates that no other one includes, and that any device can run."""
    environment = jinja2.Environment(trim_blocks=True)
    sources = {path.name.removesuffix(".cl.j2"): path.read_text() for path in template_folder().glob("*.cl.j2")}
    helpers = {
        name.removesuffix(".cl.j2")
        for source in sources.values()
        for name in jinja2.meta.find_referenced_templates(environment.parse(source))
        if name
    }
    return set(sources) - helpers - SURROUNDINGS - NOT_PORTABLE
