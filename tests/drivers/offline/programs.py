"""OpenCL C for described devices, and what their compilers make of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.drivers.offline.compilers import Amd, CompiledKernel, Intel, Nvidia, OfflineCompiler
from tests.support.fixed_cases import fixed_cases
from tflgpu.artifact.artifact import pieces_of
from tflgpu.codegen.whole_kernels import PERSISTENT
from tflgpu.compiler import compile_model
from tflgpu.measure.known_devices import device_model
from tflgpu.options import options_of

PRECISIONS = ("fp32", "fp16", "fp16_fast")
MODELS = (
    "mobilenet_v1_0.25_224_1_default_1",
    "tf2_mobilenet_v2_1.0_224_ptq",
    "deeplabv3_257_mv_gpu",
    "face_landmark",
    "selfie_segmenter",
    "movenet_single_pose_lightning_ptq",
    "torchaudio_conformer",
    "trained_lstm",
)


@dataclass(frozen=True)
class Chip:
    """A described device, and the name by which its compiler knows it."""

    model: str
    compiler: OfflineCompiler
    name: str

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that the device has."""
        return PRECISIONS if device_model(self.model).device.limits.half_arithmetic else PRECISIONS[:2]

    @property
    def executors(self) -> tuple[str, ...]:
        """The executors that may be the fastest there."""
        return ("launch", "persistent") if device_model(self.model).device.executor == "auto" else ("launch",)


CHIPS = (
    Chip("iris-xe", Intel(), "tgllp"),
    Chip("arc-a770", Intel(), "dg2-g10"),
    Chip("arc-b580", Intel(), "bmg-g21"),
    Chip("radeon-rx-6800", Amd(), "gfx1030"),
    Chip("radeon-rx-7900-xtx", Amd(), "gfx1100"),
    Chip("radeon-rx-9070-xt", Amd(), "gfx1201"),
    Chip("instinct-mi300x", Amd(), "gfx942"),
    Chip("t4", Nvidia(), "sm_75"),
    Chip("a100", Nvidia(), "sm_80"),
    Chip("rtx-3090", Nvidia(), "sm_86"),
    Chip("rtx-4090", Nvidia(), "sm_89"),
    Chip("h100", Nvidia(), "sm_90"),
    Chip("b200", Nvidia(), "sm_100"),
    Chip("rtx-5090", Nvidia(), "sm_120"),
)

# Device and template of kernels that spill, with the reason why they may.
SPILLS = {
    ("iris-xe", "gpu_convolution"): "4 to 32 bytes at 128 registers, of four layers in fp32 and three in fp16_fast",
    ("arc-b580", "gpu_depthwise_window"): "10 bytes in fp16 and fp16_fast, at 32 registers",
    ("radeon-rx-6800", "gpu_depthwise_columns"): "48 and 244 bytes in fp32, of two layers of selfie_segmenter",
    ("radeon-rx-7900-xtx", "rows_attention"): "136 bytes in fp32, of 1,024 that a work-item has",
    ("radeon-rx-9070-xt", "rows_attention"): "188 bytes in fp32, likewise",
    ("radeon-rx-9070-xt", "gpu_depthwise_columns"): "60 bytes in fp32, of a layer of selfie_segmenter",
    ("t4", PERSISTENT): "16 to 48 bytes at 255 registers, where depthwise columns alone have 254",
    ("a100", "mma_gemm_direct"): "4 bytes in fp16, of two layers: ptxas keeps to 72 registers",
    ("a100", "mma_pointwise_depthwise"): "48 bytes in fp32: ptxas keeps to 72 registers",
    ("a100", "portable_pool"): "4 bytes in fp32: ptxas keeps to 40 registers",
    ("a100", PERSISTENT): "12 to 536 bytes at up to 255 registers, of seven models in fp32; 4 to 240 of four in fp16",
    ("rtx-3090", "portable_pool"): "4 bytes in fp32: ptxas keeps to 40 registers",
    ("rtx-3090", "mma_gemm_direct"): "4 bytes in fp32, of a layer: ptxas keeps to 96 registers",
    ("rtx-3090", "mma_diagonal_depthwise"): "4 bytes in fp16, of a layer: ptxas keeps to 72 registers",
    ("rtx-3090", PERSISTENT): "4 to 268 bytes at 128 or 255 registers, of seven models in fp32; 8 of one in fp16",
    ("rtx-4090", "portable_pool"): "4 bytes in fp32: ptxas keeps to 40 registers",
    ("rtx-4090", PERSISTENT): "16 to 312 bytes at 255 registers, of six models in fp32; 20 of one in fp16",
    ("h100", "portable_pool"): "4 bytes in fp32: ptxas keeps to 32 registers",
    ("h100", "mma_gemm_direct"): "8 to 32 bytes in fp16, of five layers: ptxas keeps to 72 to 96 registers",
    ("h100", PERSISTENT): "8 to 236 bytes at up to 255 registers, of six models in fp32; 4 to 40 of three in fp16",
    ("b200", "portable_pool"): "4 bytes in fp32: ptxas keeps to 32 registers",
    ("b200", PERSISTENT): "24 to 272 bytes at 255 registers, of five models in fp32; 60 of one in fp16",
    ("rtx-5090", "portable_pool"): "4 bytes in fp32: ptxas keeps to 40 registers",
    ("rtx-5090", "mma_gemm_direct"): "4 bytes in fp16, of a layer: ptxas keeps to 80 registers",
    ("rtx-5090", PERSISTENT): "12 to 352 bytes at 128 or 255 registers, of six models in fp32; 4 to 84 of four in fp16",
}


def sources(model: bytes, chip: Chip, precision: str, executor: str = "launch") -> str:
    """The program of a model."""
    options = options_of({"precision": precision, "executor": executor, "fallback": "forbid"})
    (artifact,) = compile_model(model, options, device_model(chip.model).target(options))
    (program,) = (piece for partition in artifact.partitions for piece in pieces_of(partition))
    return program.source


def case_programs(chip: Chip, precision: str, names: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Name and source of the small models that together use every template, or of some of them."""
    for name, case in fixed_cases().items():
        if names and name not in names:
            continue
        yield name, sources(case.model, chip, precision)


def compiled(text: str, chip: Chip, root: Path, folder: Path, name: str) -> list[CompiledKernel]:
    """The kernels of a program, with the facts that the chip's compiler reports. Raises ValueError with its words if it
    refuses.
    """
    source = folder / f"{name}.cl"
    source.write_text(text)
    return chip.compiler.compile(root, source, chip.name)
