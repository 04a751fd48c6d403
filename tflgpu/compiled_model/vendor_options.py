"""LiteRT's options for NPUs and OpenVINO, by its names and numbers. They are kept, and have no effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar


class QualcommLogLevel(IntEnum):
    """LiteRT's enumeration of this name."""

    OFF = 0
    ERROR = 1
    WARN = 2
    INFO = 3
    VERBOSE = 4
    DEBUG = 5


class QualcommHtpPerformanceMode(IntEnum):
    """LiteRT's enumeration of this name."""

    DEFAULT = 0
    SUSTAINED_HIGH_PERFORMANCE = 1
    BURST = 2
    HIGH_PERFORMANCE = 3
    POWER_SAVER = 4
    LOW_POWER_SAVER = 5
    HIGH_POWER_SAVER = 6
    LOW_BALANCED = 7
    BALANCED = 8
    EXTREME_POWER_SAVER = 9


class QualcommDspPerformanceMode(IntEnum):
    """LiteRT's enumeration of this name."""

    DEFAULT = 0
    SUSTAINED_HIGH_PERFORMANCE = 1
    BURST = 2
    HIGH_PERFORMANCE = 3
    POWER_SAVER = 4
    LOW_POWER_SAVER = 5
    HIGH_POWER_SAVER = 6
    LOW_BALANCED = 7
    BALANCED = 8


class QualcommProfiling(IntEnum):
    """LiteRT's enumeration of this name."""

    OFF = 0
    BASIC = 1
    DETAILED = 2
    LINTING = 3
    OPTRACE = 4


class QualcommOptimizationLevel(IntEnum):
    """LiteRT's enumeration of this name."""

    OPTIMIZE_FOR_INFERENCE = 0
    OPTIMIZE_FOR_PREPARE = 1
    OPTIMIZE_FOR_INFERENCE_O3 = 2


class QualcommGraphPriority(IntEnum):
    """LiteRT's enumeration of this name."""

    DEFAULT = 0
    LOW = 1
    NORMAL = 2
    NORMAL_HIGH = 3
    HIGH = 4


class QualcommBackend(IntEnum):
    """LiteRT's enumeration of this name."""

    UNDEFINED = 0
    GPU = 1
    HTP = 2
    DSP = 3
    IR = 4


class QualcommGraphIOTensorMemType(IntEnum):
    """LiteRT's enumeration of this name."""

    RAW = 0
    MEM_HANDLE = 1


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


class IntelOpenVinoGraphBackend(IntEnum):
    """LiteRT's enumeration of this name."""

    CPU = 0
    GPU = 1
    NPU = 2


class IntelOpenVinoPerformanceMode(IntEnum):
    """LiteRT's enumeration of this name."""

    LATENCY = 0
    THROUGHPUT = 1
    CUMULATIVE_THROUGHPUT = 2


@dataclass
class IntelOpenVinoOptions:
    """LiteRT's options for OpenVINO."""

    GRAPH_BACKEND: ClassVar = IntelOpenVinoGraphBackend
    PERFORMANCE_MODE: ClassVar = IntelOpenVinoPerformanceMode

    graph_backend: IntelOpenVinoGraphBackend | None = None
    performance_mode: IntelOpenVinoPerformanceMode | None = None
    configs_map: dict[str, str] = field(default_factory=dict)
    enable_weight_sharing: bool | None = None
