"""The graph passes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tflgpu.errors import internal_faults
from tflgpu.graph.ir import Graph, remove_dead, verify
from tflgpu.graph.rewrite_rules import Firing, Rewritten, Rules
from tflgpu.passes.find_normalizations import find_layer_norms, find_softmaxes, sum_squares
from tflgpu.passes.fold_affine import fold_affine, merge_affine
from tflgpu.passes.fuse import fuse_elementwise, inline_shared_source
from tflgpu.passes.gather_rows import gather_rows, shorten_lookups
from tflgpu.passes.half_precision import keep_precise
from tflgpu.passes.half_precision.keep_precise import keep_given_weights
from tflgpu.passes.join_depthwise import join_depthwise
from tflgpu.passes.merge_movements import merge_movements
from tflgpu.passes.merge_padding import fuse_padding, merge_padding
from tflgpu.passes.merge_products import merge_products
from tflgpu.passes.merge_rounding import merge_rounding
from tflgpu.passes.pack_weights import pack_weights
from tflgpu.passes.pad_heads import pad_heads
from tflgpu.passes.simplify import fold_constants, simplify
from tflgpu.passes.sink_transposes import sink_transposes
from tflgpu.passes.slice_concatenations import nest_concatenations, slice_concatenations

Pass = Callable[[Graph], Graph]

# By the names that `tflgpu show --after` takes. Rules rewrite what lies around one node. A function decides about more:
# how far a transpose sinks or a movement reaches, which tensors hold the same or rows of one, which layers read one
# matrix, what half precision cannot hold.
PASSES: Mapping[str, Pass] = {
    "nest_concatenations": nest_concatenations,
    "slice_concatenations": slice_concatenations,
    "fold_constants": fold_constants,
    "shorten_lookups": shorten_lookups,
    "simplify": simplify,
    "find_softmaxes": find_softmaxes,
    "sink_transposes": sink_transposes,
    "join_depthwise": join_depthwise,
    "gather_rows": gather_rows,
    "find_layer_norms": find_layer_norms,
    "sum_squares": sum_squares,
    "pad_heads": pad_heads,
    "merge_products": merge_products,
    "merge_movements": merge_movements,
    "merge_padding": merge_padding,
    "fold_affine": fold_affine,
    "merge_affine": merge_affine,
    "inline_shared_source": inline_shared_source,
    "fuse": fuse_elementwise,
    "merge_rounding": merge_rounding,
    "fuse_padding": fuse_padding,
    "keep_given_weights": keep_given_weights,
    "keep_precise": keep_precise,
    "pack_weights": pack_weights,
}


class Step(NamedTuple):
    """A pass that has run, the graph after it, and the rules that it has applied, in order."""

    name: str
    graph: Graph
    fired: tuple[Firing, ...] = ()


def optimize(graph: Graph) -> Graph:
    """Run every pass; the graph is verified on the way in and after each."""
    *_, last = optimizing(graph)
    return last.graph


def optimizing(graph: Graph) -> Iterator[Step]:
    """Yield a step for each pass; first ``"lower"`` and the graph as it is given."""
    with internal_faults("verifying the lowered graph"):
        verify(graph)
    yield Step("lower", graph)
    for name, rewrite in PASSES.items():
        # Constants may hold anything, infinities and NaN included.
        with internal_faults(f"running the pass {name}"), np.errstate(all="ignore"):
            rewritten = rewrite.rewrite(graph) if isinstance(rewrite, Rules) else Rewritten(rewrite(graph))
            result = remove_dead(rewritten.graph)
            if result is not graph:
                verify(result)
        graph = result
        yield Step(name, graph, rewritten.fired)
