"""The second kernel of an attention whose keys work-groups divide: it joins the results of the parts."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES
from tflgpu.kernels.attention import Attention
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Kernel, Parameters
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count, waves

HELD_VEC4S = 16  # of all parts that a work-item has in registers


@dataclass(frozen=True)
class JoinedAttention:
    """Inputs: the results of the parts of ``attention``, and how much they weigh."""

    attention: Attention


@dataclass(frozen=True, kw_only=True)
class JoinAttentionParameters(Parameters, template="rows/join_attention", stores_once=True):
    """Parameters of ``templates/rows/join_attention.cl.j2``."""

    attention: Attention
    at_once: int


@GPU.lowering("join_attention")
def join_attention(request: Request) -> Kernel:
    """Return the second kernel: a work-item joins some vec4s of all parts."""
    attention, target = request.attributes(JoinedAttention).attention, request.target
    parts = request.operand("parts", 0)
    vec4s = attention.heads * attention.rows * attention.value_depth // LANES
    tiles = tile_count(vec4s, target.local_size)
    # Waves of a persistent kernel would wait for memory one after another.
    most = max(1, HELD_VEC4S // attention.parts)
    at_once = 1 if target.executor == "launch" else min(most, waves(tiles, target))
    return Kernel(
        JoinAttentionParameters(attention=attention, at_once=at_once),
        (parts,),
        tiles=tile_count(tiles, at_once),
        local_size=target.local_size,
    )
