"""What a caller may choose about a compilation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Precision = Literal["auto", "fp32", "fp16"]
KernelFamily = Literal["auto", "cpu", "gpu"]
Quantized = Literal["simulate", "float"]
Fallback = Literal["auto", "forbid"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Choices for :func:`tflgpu.compile`; immutable, so that one object can serve many models.

    precision: storage of activations and weights on the device. ``"fp32"``; ``"fp16"`` stores half precision
        and computes in float, and needs no device extension; ``"auto"`` is fp16 on GPUs and fp32 elsewhere.
    device: ``"auto"`` (the environment variable ``TFLGPU_DEVICE`` if set, else the best device found), an
        index of :func:`tflgpu.devices`, or a part of a device's or platform's name.
    fallback: what to do with operators that cannot run on the device: ``"auto"`` leaves them to LiteRT's interpreter
        on the CPU (the extra ``fallback``), with a FallbackWarning; ``"forbid"`` raises UnsupportedError with every
        reason.
    outputs: names of the tensors to return instead of the model's own outputs; any intermediate tensor may be named.
    signature: key of the signature to run; by default the first one, or the main subgraph.
    quantized: ``"simulate"`` rounds each quantized activation to what its integer type can hold, as the CPU's integer
        kernels do; ``"float"`` leaves that out.
    kernels: which kernel variants to choose; ``"auto"`` goes by the device's type. The other family also runs,
        slower: useful to compare, and to test GPU kernels where there is no GPU.
    """

    precision: Precision = "auto"
    device: str | int = "auto"
    fallback: Fallback = "auto"
    outputs: Sequence[str] | None = None
    signature: str | None = None
    quantized: Quantized = "simulate"
    kernels: KernelFamily = "auto"

    def __post_init__(self) -> None:
        choices = {"precision": Precision, "fallback": Fallback, "quantized": Quantized, "kernels": KernelFamily}
        for name, kind in choices.items():
            value, allowed = getattr(self, name), get_args(kind)
            if value not in allowed:
                raise ValueError(f"Options.{name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}")
        if isinstance(self.outputs, str):
            raise TypeError(f"Options.outputs is one string; give a list of tensor names: [{self.outputs!r}]")
        if self.outputs is not None:
            object.__setattr__(self, "outputs", tuple(self.outputs))
