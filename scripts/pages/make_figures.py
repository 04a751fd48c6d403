"""Tables of README.md and docs/performance.md from benchmarks/results: ``python -m scripts.pages.make_figures``.

A table stands between ``<!-- figures: NAME -->`` and ``<!-- end of figures -->``. A test fails if one is stale.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from math import exp, log
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
NETS = ("nets-h100-2026-11-27.json", "nets-h100-again-2026-11-27.json")  # a later row takes the place of an earlier one
NETS_CPU, NETS_AVX2 = "cpu/nets-avx512-2026-11-28.json", "cpu/nets-2026-11-27.json"
QUANTIZED_CPU, QUANTIZED_AVX2 = "cpu/quantized-avx512-2026-11-28.json", "cpu/quantized-2026-11-27.json"
PAGES = ("README.md", "docs/performance.md")
BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n\n).*?(\n<!-- end of figures -->)", re.DOTALL)

# Where a model is in several files, the first one has its times.
GPU = ("gpu-h200-2026-11-23.json", "gpu-models-h200-2026-11-23.json")
CPU = ("cpu/cpu-2026-11-23.json",)
TITLES = {
    "mobilenet_v1": "MobileNetV1 1.0 224",
    "mobilenet_v2": "MobileNetV2 1.0 224",
    "resnet50": "ResNet50 224",
    "efficientnet_b0": "EfficientNet-B0 224",
    "fir_chain": "fir_chain",
    "deeplabv3_257_mv_gpu": "DeepLabV3 257",
    "face_landmark": "face_landmark 192",
    "torchaudio_conformer": "torchaudio_conformer",
    "style_transfer_f16_384": "style_transfer 384",
}
OVERVIEW = ("mobilenet_v1", "deeplabv3_257_mv_gpu", "face_landmark", "torchaudio_conformer")
# Networks of attention, and quantized ones, of which some take longer than the peer.
OVERVIEW_NETS = {
    "vit_tiny_patch16_224": "ViT tiny 224",
    "coat_tiny": "CoaT tiny 224",
    "dpt_small": "DPT small",
    "whisper_tiny_encoder": "whisper tiny, encoder",
}
OVERVIEW_QUANTIZED = {
    "keras_mobilenetv3small_int8": "MobileNetV3 small, int8",
    "tf2_mobilenet_v2_1.0_224_ptq": "MobileNetV2 1.0 224, int8",
    "ad01_int8": "ad01, int8",
}
TORCH, GRAPH, LITERT_GPU, LITERT_CPU = "torch-compile-reduce-overhead", "torch-cuda-graph", "litert-gpu", "litert-cpu"

Row = Mapping[str, Any]


@cache
def _rows(file: str) -> tuple[Row, ...]:
    return tuple(json.loads((RESULTS / file).read_text(encoding="utf-8"))["rows"])


def _found(files: tuple[str, ...], model: str, batch: int) -> Iterator[Row]:
    """The rows of tflgpu's own choice of executor, the first file's first."""
    for file in files:
        yield from (
            row for row in _rows(file) if (row["model"], row["batch"], row["engine"]) == (model, batch, "tflgpu")
        )


def milliseconds(files: tuple[str, ...], model: str, metric: str, batch: int = 1) -> float:
    """tflgpu's time of a metric: ``device``, ``launch`` or ``host``."""
    return next(float(row["tflgpu_ms"]) for row in _found(files, model, batch) if row["metric"] == metric)


def ratio(files: tuple[str, ...], model: str, peer: str, batch: int = 1) -> str:
    """tflgpu's part of a peer's time in the same run; empty if that was not measured."""
    found = (row["ratio"] for row in _found(files, model, batch) if row["peer"] == peer)
    return next((f"{ratio:.2f}" for ratio in found if ratio is not None), "")


def _first(files: tuple[str, ...], model: str, field: str, batch: int = 1) -> float:
    return next(float(row[field]) for row in _found(files, model, batch) if row.get(field) is not None)


def _error(files: tuple[str, ...], model: str) -> str:
    mantissa, exponent = f"{_first(files, model, 'max_error'):.0e}".split("e")
    return f"{mantissa}e{int(exponent)}" if mantissa != "0" else "0"


def overview() -> Iterator[str]:
    """From host array to host array, on a GPU and on a CPU."""
    yield "| model | NVIDIA's GPU, fp16 | of a peer's time there | 2 cores of an EPYC, fp32 | of LiteRT CPU's time |"
    yield "|---|---|---|---|---|"
    for model in OVERVIEW:
        gpu, cpu = milliseconds(GPU, model, "host"), milliseconds(CPU, model, "host")
        cells = (
            TITLES[model],
            f"H200 {gpu:.3f} (error {_error(GPU, model)})",
            f"{part} (LiteRT)" if (part := ratio(GPU, model, LITERT_GPU)) else "",
            f"{cpu:.2f} (error {_error(CPU, model)})",
            ratio(CPU, model, LITERT_CPU),
        )
        yield f"| {' | '.join(cells)} |"
    on_gpu = _measured_nets()
    for file, titles in ((NETS_CPU, OVERVIEW_NETS), (QUANTIZED_CPU, OVERVIEW_QUANTIZED)):
        for model, title in titles.items():
            row = on_gpu.get(model)
            cells = (
                title,
                f"H100 {row['ms']:.3f}" if row else "",
                f"{row['ratio']:.2f} (torch.compile)" if row and row["ratio"] else "",
                f"{milliseconds((file,), model, 'host'):.3g} (error {_error((file,), model)})",
                ratio((file,), model, LITERT_CPU),
            )
            yield f"| {' | '.join(cells)} |"


def gpu() -> Iterator[str]:
    """All models of one GPU."""
    yield (
        "| model | batch | device | launch | host | of torch.compile's time | of a CUDA graph's time "
        "| of LiteRT GPU's time | roofline | max error |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for model, title in TITLES.items():
        for batch in (1, 64):
            if not any(_found(GPU, model, batch)):
                continue
            times = (f"{milliseconds(GPU, model, metric, batch):.3f}" for metric in ("device", "launch", "host"))
            peers = (ratio(GPU, model, peer, batch) for peer in (TORCH, GRAPH, LITERT_GPU))
            roofline, error = (_first(GPU, model, field, batch) for field in ("roofline", "max_error"))
            cells = title, str(batch), *times, *peers, f"{roofline:.0%}", f"{error:.0e}"
            yield f"| {' | '.join(cells)} |"


def nets() -> Iterator[str]:
    """Networks with drawn weights beside torch.compile."""
    yield "| network | kernels | ms | torch.compile, ms | part of its time | slowest attention, us on the device |"
    yield "|---|---|---|---|---|---|"
    for row in _measured_nets().values():
        peer = (f"{row['torch_ms']:.3f}", f"{row['ratio']:.2f}") if row["torch_ms"] else ("", "")
        attention = f"{row['attention_us']:.1f}" if row["attention_us"] else ""
        cells = row["network"], str(row["kernels"]), f"{row['ms']:.3f}", *peer, attention
        yield f"| {' | '.join(cells)} |"


def _measured_nets() -> Mapping[str, Row]:
    """The last row of each network on a GPU."""
    return {row["network"]: row for file in NETS for row in _rows(file)}


def beside_peers(file: str) -> Iterator[str]:
    """Networks on a CPU beside its peers, from host to host."""
    peers = {LITERT_CPU: "LiteRT", "openvino": "OpenVINO", "onnx-runtime": "ONNX Runtime"}
    rows = [row for row in _rows(file) if row["metric"] == "host" and row["peer"] in peers]
    found = {(row["model"], row["precision"], row["peer"]): row for row in rows}
    present = [peer for peer in peers if any(row["peer"] == peer for row in rows)]
    precisions = sorted({row["precision"] for row in rows}, reverse=True)
    columns = [(precision, peer) for precision in precisions for peer in present]
    yield f"| network | {' | '.join(f'{p}, part of the time of {peers[peer]}' for p, peer in columns)} |"
    yield f"|---|{'---|' * len(columns)}"
    for model in dict.fromkeys(row["model"] for row in rows):
        ratios = [found.get((model, *column), {}).get("ratio") for column in columns]
        yield f"| {model} | {' | '.join('' if ratio is None else f'{ratio:.2f}' for ratio in ratios)} |"
    means = [
        _geometric_mean([row["ratio"] for row in rows if (row["precision"], row["peer"]) == c and row["ratio"]])
        for c in columns
    ]
    yield f"| geometric mean | {' | '.join(f'{mean:.2f}' for mean in means)} |"


def _geometric_mean(ratios: list[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    "overview": overview,
    "gpu": gpu,
    "nets": nets,
    "nets_cpu": partial(beside_peers, NETS_CPU),
    "quantized_cpu": partial(beside_peers, QUANTIZED_CPU),
    "nets_avx2": partial(beside_peers, NETS_AVX2),
    "quantized_avx2": partial(beside_peers, QUANTIZED_AVX2),
}


def rewritten(page: str) -> str:
    """The text of a page with its tables as the results have them."""
    return BLOCK.sub(lambda found: f"{found[1]}{chr(10).join(TABLES[found[2]]())}\n{found[3]}", page)


def main() -> None:
    for name in PAGES:
        path = ROOT / name
        path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
