"""LiteRT's options of a compiled model and its ``Environment``, and what they say in tflgpu's terms."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar

import tflgpu.options
from tflgpu.checking.option_declarations import require_defaults
from tflgpu.checking.option_fields import GREATEST_SIZE
from tflgpu.errors import DeviceError
from tflgpu.hardware_accelerator import HardwareAccelerator
from tflgpu.interpreter.delegate import DECIDED_BY_FILE_OR_METHODS
from tflgpu.runtime.device_memory import Queue

# LiteRT's enumerations, which count from 0.

QualcommLogLevel = IntEnum("QualcommLogLevel", "OFF ERROR WARN INFO VERBOSE DEBUG", start=0)

QualcommHtpPerformanceMode = IntEnum(
    "QualcommHtpPerformanceMode",
    "DEFAULT SUSTAINED_HIGH_PERFORMANCE BURST HIGH_PERFORMANCE POWER_SAVER LOW_POWER_SAVER HIGH_POWER_SAVER "
    "LOW_BALANCED BALANCED EXTREME_POWER_SAVER",
    start=0,
)

QualcommDspPerformanceMode = IntEnum(
    "QualcommDspPerformanceMode",
    "DEFAULT SUSTAINED_HIGH_PERFORMANCE BURST HIGH_PERFORMANCE POWER_SAVER LOW_POWER_SAVER HIGH_POWER_SAVER "
    "LOW_BALANCED BALANCED",
    start=0,
)

QualcommProfiling = IntEnum("QualcommProfiling", "OFF BASIC DETAILED LINTING OPTRACE", start=0)

QualcommOptimizationLevel = IntEnum(
    "QualcommOptimizationLevel",
    "OPTIMIZE_FOR_INFERENCE OPTIMIZE_FOR_PREPARE OPTIMIZE_FOR_INFERENCE_O3",
    start=0,
)

QualcommGraphPriority = IntEnum("QualcommGraphPriority", "DEFAULT LOW NORMAL NORMAL_HIGH HIGH", start=0)

QualcommBackend = IntEnum("QualcommBackend", "UNDEFINED GPU HTP DSP IR", start=0)

QualcommGraphIOTensorMemType = IntEnum("QualcommGraphIOTensorMemType", "RAW MEM_HANDLE", start=0)


@dataclass
class QualcommOptions:
    """LiteRT's options for Qualcomm's NPUs."""

    LOG_LEVEL: ClassVar = QualcommLogLevel
    HTP_PERFORMANCE_MODE: ClassVar = QualcommHtpPerformanceMode
    DSP_PERFORMANCE_MODE: ClassVar = QualcommDspPerformanceMode
    PROFILING: ClassVar = QualcommProfiling
    OPTIMIZATION_LEVEL: ClassVar = QualcommOptimizationLevel
    GRAPH_PRIORITY: ClassVar = QualcommGraphPriority
    BACKEND: ClassVar = QualcommBackend
    GRAPH_IO_TENSOR_MEM_TYPE: ClassVar = QualcommGraphIOTensorMemType

    log_level: QualcommLogLevel | None = None
    htp_performance_mode: QualcommHtpPerformanceMode | None = None
    dsp_performance_mode: QualcommDspPerformanceMode | None = None
    use_int64_bias_as_int32: bool | None = None
    enable_weight_sharing: bool | None = None
    use_conv_hmx: bool | None = None
    use_fold_relu: bool | None = None
    profiling: QualcommProfiling | None = None
    dump_tensor_ids: Sequence[int] | None = None
    ir_json_dir: str = ""
    dlc_dir: str = ""
    vtcm_size: int | None = None
    num_hvx_threads: int | None = None
    optimization_level: QualcommOptimizationLevel | None = None
    graph_priority: QualcommGraphPriority | None = None
    backend: QualcommBackend | None = None
    saver_output_dir: str = ""
    graph_io_tensor_mem_type: QualcommGraphIOTensorMemType | None = None


IntelOpenVinoGraphBackend = IntEnum("IntelOpenVinoGraphBackend", "CPU GPU NPU", start=0)

IntelOpenVinoPerformanceMode = IntEnum(
    "IntelOpenVinoPerformanceMode",
    "LATENCY THROUGHPUT CUMULATIVE_THROUGHPUT",
    start=0,
)


@dataclass
class IntelOpenVinoOptions:
    """LiteRT's options for OpenVINO."""

    GRAPH_BACKEND: ClassVar = IntelOpenVinoGraphBackend
    PERFORMANCE_MODE: ClassVar = IntelOpenVinoPerformanceMode

    graph_backend: IntelOpenVinoGraphBackend | None = None
    performance_mode: IntelOpenVinoPerformanceMode | None = None
    configs_map: dict[str, str] = field(default_factory=dict)
    enable_weight_sharing: bool | None = None


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


@dataclass(frozen=True)
class EnvironmentOptions:
    """Where LiteRT finds its libraries. They have no effect here: OpenCL finds its drivers.

    Attributes:
        runtime_path: Folder of the runtime.
        compiler_plugin_path: Folder of plugins for NPUs.
        dispatch_library_path: Folder of drivers for NPUs.
    """

    runtime_path: str | None = None
    compiler_plugin_path: str = ""
    dispatch_library_path: str = ""


@dataclass(frozen=True)
class Shared:
    """Resources of an environment for its models. queue: of pyopencl, None if each model makes its own."""

    queue: Queue | None = None


class Environment:
    """Resources that several models share; :meth:`create` makes it. A context manager.

    Args:
        capsule: What another environment has as ``capsule``.
        options: The options that it was created with.
    """

    def __init__(self, capsule: Any, options: EnvironmentOptions) -> None:
        self._capsule, self._options = capsule, options

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        self.close()

    def close(self) -> None:
        """No further models can be made with it; those that have been go on."""
        self._capsule = None

    @classmethod
    def create(
        cls,
        *,
        options: EnvironmentOptions | str | None = None,
        runtime_path: str | None = None,
        compiler_plugin_path: str = "",
        dispatch_library_path: str = "",
        queue: Queue | None = None,
    ) -> Environment:
        """Make an environment.

        Args:
            options: Kept, without effect; a text is the ``runtime_path``.
            runtime_path: Kept, without effect.
            compiler_plugin_path: Kept, without effect.
            dispatch_library_path: Kept, without effect.
            queue: As of :func:`tflgpu.compile`: all models of the environment run on this queue of pyopencl, so that
                they can share arrays on the device. LiteRT has no such argument.

        Returns:
            The environment.

        Raises:
            ValueError: ``options`` is given and one of the paths, too.
        """
        if isinstance(options, str):
            if runtime_path is not None:
                raise ValueError("runtime_path was provided twice.")
            options, runtime_path = None, options
        paths = EnvironmentOptions(runtime_path, compiler_plugin_path, dispatch_library_path)
        if options is not None and paths != EnvironmentOptions():
            raise ValueError("Pass either options or environment path shortcuts.")
        chosen = options or paths
        place = chosen.runtime_path or str(Path(__file__).parents[1])
        full = EnvironmentOptions(place, chosen.compiler_plugin_path, chosen.dispatch_library_path)
        return cls(Shared(queue), full)

    @property
    def options(self) -> EnvironmentOptions:
        """The options that it was created with."""
        return self._options

    @property
    def capsule(self) -> Any:
        """Resources for a model. Raises ValueError if the environment is closed."""
        if self._capsule is None:
            raise ValueError("Environment is no longer valid")
        return self._capsule
