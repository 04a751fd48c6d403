"""SmolLM's architecture in PyTorch as torch.compile likes it: a static cache in buffers, and constant sizes."""

# mypy: disable-error-code="misc"

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTH, HIDDEN, LAYERS, HEADS, KEY_HEADS, HEAD = 576, 1536, 30, 9, 3, 64


class Block(nn.Module):
    """Attention over the cache, then the gated layers."""

    def __init__(self, cache: int) -> None:
        super().__init__()
        self.attention_norm, self.norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.joint = nn.Linear(WIDTH, (HEADS + 2 * KEY_HEADS) * HEAD, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_and_up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.register_buffer("keys", torch.zeros(1, KEY_HEADS, cache, HEAD))
        self.register_buffer("values", torch.zeros(1, KEY_HEADS, cache, HEAD))

    def forward(self, x: Any, places: Any, angles: Any, mask: Any) -> Any:
        """x: [1, tokens, width]. places: [tokens]. angles: [tokens, head]. mask: [tokens, cache]."""
        joint = self.joint(self.attention_norm(x)).view(1, -1, HEADS + 2 * KEY_HEADS, HEAD).transpose(1, 2)
        queries, keys, values = joint.split([HEADS, KEY_HEADS, KEY_HEADS], 1)
        self.keys.index_copy_(2, places, rotated(keys, angles))
        self.values.index_copy_(2, places, values)
        found = functional.scaled_dot_product_attention(
            rotated(queries, angles), self.keys, self.values, attn_mask=mask, enable_gqa=True
        )
        x = x + self.out(found.transpose(1, 2).reshape(1, -1, WIDTH))
        gate, up = self.gate_and_up(self.norm(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


def rotated(x: Any, angles: Any) -> Any:
    """A rotary embedding of [1, heads, tokens, head]."""
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()


class Decoder(nn.Module):
    """Tokens and their places -> the scores of what follows the last one."""

    def __init__(self, vocabulary: int, cache: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.blocks = nn.ModuleList(Block(cache) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.register_buffer("steps", torch.arange(cache))
        self.register_buffer("rates", 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD))

    def forward(self, tokens: Any, places: Any) -> Any:
        """tokens: [1, tokens]. places: [tokens]. Returns [1, vocabulary]."""
        angles = (places[:, None] * self.rates).repeat(1, 2).to(self.embedding.weight.dtype)
        mask = self.steps <= places[:, None]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, places, angles, mask)
        return functional.linear(self.norm(x[:, -1]), self.embedding.weight)
