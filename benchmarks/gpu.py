"""Times on a GPU beside PyTorch, LiteRT's GPU path and tinygrad.

    python -m benchmarks.gpu MODEL... [--batch 1,64] [--precision fp16,fp32] [--peers torch,litert-gpu,tinygrad-opencl]
                             [--rounds 10] [--jobs 8] [--device D] [--out FILE]

benchmarks/contest/comparison.py says what is measured, and how.
"""

from __future__ import annotations

from benchmarks.contest import comparison

PEERS = comparison.Peers(
    {"torch": "pytorch", "tinygrad-opencl": "tinygrad_opencl", "litert-gpu": "litert_gpu"},
    ("torch", "timm", "tinygrad"),
)


if __name__ == "__main__":
    comparison.main(__doc__.splitlines()[0], PEERS, precisions="fp16,fp32", jobs=8)
