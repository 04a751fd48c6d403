"""LiteRT's options of a compiled model, and what they say in tflgpu's terms."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from enum import IntEnum

import tflgpu.options
from tflgpu.checking.option_declarations import require_defaults
from tflgpu.checking.option_fields import GREATEST_SIZE
from tflgpu.compiled_model.vendor_options import IntelOpenVinoOptions, QualcommOptions
from tflgpu.errors import DeviceError
from tflgpu.hardware_accelerator import HardwareAccelerator
from tflgpu.interpreter.delegate import DECIDED_BY_FILE_OR_METHODS

KERNEL_MODES = (0, 1, 2)


class CpuKernelMode(IntEnum):
    """LiteRT's sets of CPU kernels, by its names and numbers. They make no difference to kernels of a device."""

    DELEGATE = 0
    XNNPACK = 0
    REFERENCE = 1
    BUILTIN = 2


@dataclass
class CpuOptions:
    """LiteRT's options for CPUs. They are checked; all but the number of threads have no effect.

    Attributes:
        num_threads: The number of cores of a device that is a CPU; 0 for all of them.
        kernel_mode: Which kernels of LiteRT's.
        enable_ynnpack: Another library of kernels.
        xnnpack_flags: Flags of XNNPACK.
        xnnpack_weight_cache_path: Where XNNPACK keeps weights.
    """

    num_threads: int = 0
    kernel_mode: CpuKernelMode | None = None
    enable_ynnpack: bool = False
    xnnpack_flags: int | None = None
    xnnpack_weight_cache_path: str = ""


@dataclass
class GpuOptions:
    """LiteRT's options for GPUs.

    Attributes:
        enforce_f32: Store and compute in float, as ``tflgpu.Options(precision="fp32")`` does; otherwise a GPU stores
            half precision.
        constant_tensor_sharing: Without effect.
        infinite_float_capping: Without effect: finite numbers stay finite in any case.
        benchmark_mode: Without effect.
        allow_src_quantized_fc_conv_ops: Without effect: quantized operators run in any case.
        hint_waiting_for_completion: Without effect.
    """

    enforce_f32: bool = False
    constant_tensor_sharing: bool = False
    infinite_float_capping: bool = False
    benchmark_mode: bool = False
    allow_src_quantized_fc_conv_ops: bool = False
    hint_waiting_for_completion: bool = False


@dataclass(init=False)
class Options:
    """LiteRT's options of one model. Each group is made when it is first asked for.

    Args:
        hardware_accelerators: The processors that the model may use.
        cpu_options: For CPUs.
        gpu_options: For GPUs.
        qualcomm_options: Without effect.
        intel_openvino_options: Without effect.
    """

    hardware_accelerators: HardwareAccelerator = HardwareAccelerator.CPU
    _cpu_options: CpuOptions | None = None
    _gpu_options: GpuOptions | None = None
    _qualcomm_options: QualcommOptions | None = None
    _intel_openvino_options: IntelOpenVinoOptions | None = None

    def __init__(
        self,
        hardware_accelerators: HardwareAccelerator = HardwareAccelerator.CPU,
        cpu_options: CpuOptions | None = None,
        gpu_options: GpuOptions | None = None,
        qualcomm_options: QualcommOptions | None = None,
        intel_openvino_options: IntelOpenVinoOptions | None = None,
    ) -> None:
        self.hardware_accelerators = hardware_accelerators
        self._cpu_options, self._gpu_options = cpu_options, gpu_options
        self._qualcomm_options, self._intel_openvino_options = qualcomm_options, intel_openvino_options

    @classmethod
    def create(cls) -> Options:
        """Return the default options."""
        return cls()

    @property
    def cpu_options(self) -> CpuOptions:
        """The options for CPUs, which may be changed."""
        self._cpu_options = self._cpu_options or CpuOptions()
        return self._cpu_options

    @property
    def gpu_options(self) -> GpuOptions:
        """The options for GPUs, which may be changed."""
        self._gpu_options = self._gpu_options or GpuOptions()
        return self._gpu_options

    @property
    def qualcomm_options(self) -> QualcommOptions:
        """The options for Qualcomm's NPUs, which may be changed."""
        self._qualcomm_options = self._qualcomm_options or QualcommOptions()
        return self._qualcomm_options

    @property
    def intel_openvino_options(self) -> IntelOpenVinoOptions:
        """The options for OpenVINO, which may be changed."""
        self._intel_openvino_options = self._intel_openvino_options or IntelOpenVinoOptions()
        return self._intel_openvino_options


def chosen_options(
    options: Options | tflgpu.options.Options | None, hardware_accel: HardwareAccelerator | None
) -> tflgpu.options.Options:
    """Return the arguments of ``CompiledModel.from_file`` as options of tflgpu.

    Args:
        options: LiteRT's options or tflgpu's; None for the default ones.
        hardware_accel: The processors that LiteRT may use; None for the best device.

    Raises:
        ValueError: Both are given, or the file or a method decides one of the options.
        AttributeError: ``options`` is no object with options.
        TypeError: The number of threads is no whole number.
        DeviceError: There is no driver for a processor that was asked for.
    """
    if options is not None and hardware_accel is not None:
        raise ValueError("Pass either options or hardware_accel, not both.")
    if isinstance(options, tflgpu.options.Options):
        require_defaults(options, DECIDED_BY_FILE_OR_METHODS, "a CompiledModel goes by the file and its methods")
        return options
    if options is None:
        return tflgpu.options.Options() if hardware_accel is None else _of(int(hardware_accel), None, None)
    return _of(int(options.hardware_accelerators), options._cpu_options, options._gpu_options)


def _of(accelerators: int, cpu: CpuOptions | None, gpu: GpuOptions | None) -> tflgpu.options.Options:
    known = HardwareAccelerator.CPU | HardwareAccelerator.GPU | HardwareAccelerator.NPU
    if not 0 < accelerators <= known:
        raise DeviceError(f"hardware accelerators are {accelerators}; CPU, GPU, or both were expected")
    on_cpu, on_gpu = (bool(accelerators & each) for each in (HardwareAccelerator.CPU, HardwareAccelerator.GPU))
    if not on_cpu and not on_gpu:
        raise DeviceError("there is no driver for an NPU; HardwareAccelerator.CPU or GPU runs the model by OpenCL")
    threads = 0
    if cpu is not None:
        threads = min(operator.index(cpu.num_threads), GREATEST_SIZE)
        if cpu.kernel_mode is not None and cpu.kernel_mode not in KERNEL_MODES:
            raise DeviceError(f"kernel mode is {cpu.kernel_mode!r}; a CpuKernelMode was expected")
    return tflgpu.options.Options(
        device="auto" if on_cpu and on_gpu else "gpu" if on_gpu else "cpu",
        threads=threads if threads > 0 else None,
        fallback="auto" if on_cpu else "forbid",
        precision="fp32" if gpu is not None and gpu.enforce_f32 else "auto",
    )
