"""A device as data: what planning asks of it. Plans for a description need no device."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from tflgpu.errors import DeviceError
from tflgpu.options import Options
from tflgpu.target import Limits, Target

MATRIX_UNIT = "mma.m16n8k16"  # as tflgpu.kernels.mma describes it


@dataclass(frozen=True, kw_only=True)
class DeviceDescription:
    """The facts of a device that plans depend on, its costs aside.

    Attributes:
        name: As its driver says.
        platform: The OpenCL platform's name.
        type: ``"gpu"``, ``"cpu"`` or ``"accelerator"``.
        version: The OpenCL version, as the device says.
        driver: The driver's version.
        memory: Global memory in bytes.
        compute_units: How many there are.
        kernels: The family of kernels that is the faster one there: what ``Options.execution.kernels`` ``"auto"``
            becomes.
        limits: What plans keep to.
        executor: What ``Options.execution.executor`` ``"auto"`` becomes.
        ptx: Whether its compiler takes NVIDIA's inline assembly.
        matrix_units: Whether it has tensor cores that kernels are there for, :data:`MATRIX_UNIT`.
        integer_unit: The instructions by which a CPU multiplies 8-bit integers, of :mod:`tflgpu.kernels.integers`.
        int64: Whether it computes with integers of 64 bits.
        float64: Whether it computes with doubles.
    """

    name: str
    platform: str
    type: Literal["gpu", "cpu", "accelerator"]
    version: str
    driver: str
    memory: int
    compute_units: int
    kernels: Literal["cpu", "gpu"]
    limits: Limits
    executor: Literal["launch", "claiming", "auto"]
    ptx: bool
    matrix_units: bool
    integer_unit: str | None
    int64: bool
    float64: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, those of the limits among them, as plain data."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "limits"}
        return own | asdict(self.limits)

    def target(self, options: Options) -> Target:
        """Return what planning needs to know, under the caller's choices.

        Raises DeviceError if the device does not have what they need.
        """
        execution = options.execution
        family = self.kernels if execution.kernels == "auto" else execution.kernels
        precision = options.precision
        if precision == "auto":
            precision = "fp32" if self.type == "cpu" and options.numerics.tolerance is None else "fp16"
        if precision == "fp16_fast" and not self.limits.half_arithmetic:
            raise DeviceError(
                f"precision 'fp16_fast' multiplies in half, which needs a device with cl_khr_fp16; {self.name} "
                f"({self.platform}) does not have it; use precision 'fp16', which stores half and computes in float"
            )
        if execution.executor == "persistent" and not (self.int64 and self.limits.local_bytes):
            raise DeviceError(
                f"executor 'persistent' needs a device with local memory and 64-bit integers; {self.name} "
                f"({self.platform}) does not have both; use executor 'launch'"
            )
        can_claim = self.executor == "claiming" and family == "cpu"
        if execution.executor == "claiming" and not can_claim:
            raise DeviceError(
                f"executor 'claiming' needs a CPU with the atomic operations of OpenCL C 2.0, and kernels for CPUs; "
                f"{self.name} ({self.platform}) does not have both; use executor 'launch'"
            )
        usual = "launch" if self.executor == "claiming" and not can_claim else self.executor
        return Target(
            family=family,
            compute_units=self.compute_units,
            storage="float" if precision == "fp32" else "half",
            arithmetic="half" if precision == "fp16_fast" else "float",
            executor=usual if execution.executor == "auto" else execution.executor,
            ptx=self.ptx,
            matrix_unit=MATRIX_UNIT if self.matrix_units else None,
            integer_unit=self.integer_unit if family == "cpu" and execution.integer_products == "auto" else None,
            limits=self.limits.of_plans,
            missing_types=tuple(name for name in ("int64", "float64") if not getattr(self, name)),
        )
