"""Times on a CPU beside LiteRT's CPU path, OpenVINO, ONNX Runtime and tinygrad, on as many cores each.

    python -m benchmarks.cpu MODEL... [--precision fp32,fp16] [--peers litert,openvino,onnx-runtime,tinygrad-opencl]
                             [--rounds 10] [--device D] [--out FILE]

Peers compute in fp32 beside tflgpu's fp32 and beside its fp16; LiteRT on one core, too. ONNX Runtime has those models
that tflite2onnx translates. benchmarks/contest/comparison.py says what is measured, and how.
"""

from __future__ import annotations

from benchmarks.contest import comparison

PEERS = comparison.Peers(
    {
        "tinygrad-opencl": "tinygrad_opencl",
        "onnx-runtime": "onnx_runtime",
        "openvino": "openvino_cpu",
        "litert": "litert_cpu",
    },
    ("openvino", "onnxruntime", "tflite2onnx", "tinygrad"),
)


if __name__ == "__main__":
    comparison.main(__doc__.splitlines()[0], PEERS, precisions="fp32,fp16", jobs=1)
