"""LiteRT's options for NPUs and OpenVINO, by its names and numbers. They are kept, and have no effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar

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
