"""Which template files are kernels, and what they see."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import jinja2
import jinja2.meta

import tflgpu.kernels
from tflgpu.codegen.environment import template_folder
from tflgpu.kernels.kernel import Parameters

# Templates around kernels: the prelude, the executors of one launch, and the probes of a device.
SURROUNDINGS = {
    "access/half_arithmetic",
    "access/storage",
    "access/grid_storage",
    "access/wide_storage",
    "executor/claiming",
    "executor/grid",
    "executor/grid_barrier",
    "executor/persistent",
    "integers/unit",
    "probes/arithmetic",
    "probes/grid_barriers",
    "probes/integer_unit",
    "probes/memory",
    "ptx/float_products",
    "ptx/grid_ptx",
    "ptx/half_functions_ptx",
    "ptx/matrix_units_ptx",
    "ptx/multiply_matrices",
    "ptx/rounding_ptx",
    "ptx/storage_ptx",
    "ptx/warp_ptx",
}
# Kernels with calls of NVIDIA's assembly, which tests/support/emulated_matrix_units.py emulates, and those of CPUs with
# an integer unit.
NOT_PORTABLE = {
    "integers/integer_convolution",
    "integers/integer_depthwise",
    "integers/integer_patches",
    "integers/integer_layer",
    "mma/gemm/direct",
    "mma/gemm/k_tiles",
    "mma/gemm/few_channels",
    "mma/gemm/patch",
    "mma/gemm/row_major",
    "mma/gemm/rows",
    "mma/pointwise_depthwise",
    "mma/depthwise_pointwise",
    "mma/diagonal_depthwise",
    "mma/gemm/activations",
    "mma/attention_tiles",
    "rows/join_attention",
}


def kernel_templates() -> set[str]:
    """The names of all templates that no other one includes, and that any device can run."""
    environment = jinja2.Environment(trim_blocks=True)
    folder = template_folder()
    paths = folder.rglob("*.cl.j2")
    sources = {str(path.relative_to(folder)).removesuffix(".cl.j2"): path.read_text() for path in paths}
    helpers = {
        name.removesuffix(".cl.j2")
        for source in sources.values()
        for name in jinja2.meta.find_referenced_templates(environment.parse(source))
        if name
    }
    return set(sources) - helpers - SURROUNDINGS - NOT_PORTABLE


def parameters_of_templates() -> list[type[Parameters]]:
    """The dataclass of every template; those that have no template of their own are only there to be extended."""
    for module in pkgutil.walk_packages(tflgpu.kernels.__path__, "tflgpu.kernels."):
        importlib.import_module(module.name)

    def below(cls: type[Parameters]) -> Iterator[type[Parameters]]:
        for sub in cls.__subclasses__():
            yield sub
            yield from below(sub)

    # Some extend two others, and plugins have more.
    found = {c for c in below(Parameters) if "template" in vars(c) and c.__module__.startswith("tflgpu.")}
    return sorted(found, key=lambda cls: cls.template)
