"""A program as a user writes it, with every public name: ``mypy --strict`` accepts it, and it runs."""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import tflgpu


def best(outputs: Mapping[str, NDArray[np.float32]]) -> int:
    (scores,) = outputs.values()
    return int(scores.argmax())


def choose(devices: tuple[tflgpu.Device, ...]) -> int:
    return max(devices, key=lambda device: device.type == "gpu").index


def describe(info: tflgpu.TensorInfo) -> str:
    scale = info.quantization.scale[0] if info.quantization else 1.0
    return f"{info.name} {'x'.join(map(str, info.shape))} {info.dtype}, scale {scale}"


def slowest(profile: tflgpu.Profile) -> tflgpu.KernelTime:
    return max(profile.kernels, key=lambda kernel: kernel.seconds)


def on_cpu(report: tflgpu.Report) -> list[tflgpu.OperatorReport]:
    return [operator for operator in report.operators if operator.device != "device"]


def with_interpreter(path: Path, image: NDArray[np.float32]) -> int:
    interpreter = tflgpu.Interpreter(str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    scores: NDArray[np.float32] = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return int(scores.argmax())


def main(path: Path, image: NDArray[np.float32]) -> None:
    failures: tuple[type[Warning], ...] = tflgpu.CacheWarning, tflgpu.DeviceWarning, tflgpu.FallbackWarning
    for warning in (*failures, tflgpu.PluginWarning, tflgpu.PrecisionWarning):
        warnings.simplefilter("error", warning)
    options = tflgpu.Options(
        precision="fp32",
        device=choose(tflgpu.devices()),
        shapes=tflgpu.Shapes(batch=None),
        interface=tflgpu.Interface(uint8_inputs=None),
        numerics=tflgpu.Numerics(checks=True),
        execution=tflgpu.Execution(executor="launch"),
        cpu_part=tflgpu.CpuPart(operators=[]),
        cache="readwrite",
        cache_files=tflgpu.CacheFiles(model_token=tflgpu.model_token(path.read_bytes())),
    )
    with tflgpu.compile(path, options) as model:
        print(tflgpu.__version__, model.device.name, *map(describe, model.inputs), *map(describe, model.outputs))
        frame: NDArray[np.float32] = model.pinned_array("image")
        frame[...] = image
        submission: tflgpu.Submission = model.enqueue(image)
        answers = {best(model.run({"image": frame})), best(model.run([image])), best(model.run(image))}
        answers |= {best(submission.wait()), *map(best, model.run_many([image, image]))}
        with tflgpu.Pool(model, requests=2) as pool:
            pool.start_async(image)
            answers |= {best(outputs) for outputs in pool.wait_all()}
        copy: tflgpu.CompiledModel = pickle.loads(pickle.dumps(model))
        assert answers == {best(copy.run(image)), with_interpreter(path, image)}
        assert on_cpu(model.report) == on_cpu(tflgpu.inspect(path)) == []
        print(slowest(model.profile(image, runs=2)).operators)
        model.reset_state()
        open_session: Callable[..., tflgpu.ModelSession] = model.session
        print(open_session, list(model.signatures))


def explain(error: tflgpu.TflgpuError) -> str:
    match error:
        case tflgpu.UnsupportedError(reasons=reasons):
            return "; ".join(reasons)
        case tflgpu.BuildError(log=log):
            return log
        case tflgpu.CacheMissError() | tflgpu.CacheDirectoryError() | tflgpu.BundleError():
            return f"the cache: {error}"
        case tflgpu.ModelError() | tflgpu.DeviceError() | tflgpu.InternalError():
            return str(error)
        case _:
            return "something new"


if __name__ == "__main__":
    try:
        digits = np.load(Path(sys.argv[1]) / "held_out.npz")
        main(Path(sys.argv[1]) / "digits.tflite", digits["images"][:1, :, :, None].astype(np.float32) / 16)
    except tflgpu.TflgpuError as error:
        sys.exit(explain(error))
