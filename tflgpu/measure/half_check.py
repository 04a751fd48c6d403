"""Whether half precision does for a model: checked once, when it is compiled for the first time.

LiteRT runs the model in float in a process of its own, while the model is planned and built here, and is waited for:
whether there is a warning does not depend on which of both is faster. Only where its answers are far from the device's,
a tensor is beyond the range of half, or the caller asks for a check of a model that LiteRT cannot run, the model is
compiled in float as well. If that does not acquit half precision, the results of all kernels are compared.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.artifact.artifact import Artifact
from tflgpu.errors import TflgpuError
from tflgpu.fallback import is_installed
from tflgpu.fallback.guarded_process import CrashedError, GuardedProcess, RefusedError
from tflgpu.frontend.frontend import Frontend
from tflgpu.measure.mixed_precision.generated_inputs import small_picture
from tflgpu.measure.mixed_precision.output_errors import OutputErrors
from tflgpu.measure.trace import Result, trace
from tflgpu.model.reader import read_model
from tflgpu.model.tensor_info import Interface, TensorInfo
from tflgpu.options import Options
from tflgpu.report.describe import constant_bytes, kind_of
from tflgpu.report.half_precision import LARGEST_ERROR, HalfPrecision, OffTensor
from tflgpu.runtime.instance import Instance
from tflgpu.target import HALF_MAX

Array = NDArray[Any]

LOGGER = logging.getLogger(__name__)

# Of a model's constants. LiteRT keeps all tensors of a run in memory.
MOST_BYTES = 256 << 20

# Until LiteRT's answers are given up, where the caller sets no limit.
SECONDS = 10.0

ON_REQUEST = "Numerics(half_check='always') compares with fp32"

# Operators whose results are places and choices: near numbers that change their order are no error of half precision.
CHOOSE = frozenset(
    (
        "ARG_MAX",
        "ARG_MIN",
        "NON_MAX_SUPPRESSION_V4",
        "NON_MAX_SUPPRESSION_V5",
        "TFLite_Detection_PostProcess",
        "TOPK_V2",
    )
)


class HalfCheck:
    """Compares a model's answers in half precision with those in float, on a generated input."""

    def __init__(self, model: bytes, options: Options) -> None:
        """model: the file. options: the caller's."""
        self._model, self._options = model, options
        self._judged: tuple[list[Array], dict[str, float]] | None = None
        self._inputs: list[Array] = []
        self._obstacle: str | None = None  # None until it begins
        self._thread: threading.Thread | None = None

    def begin(self, frontend: Frontend) -> None:
        """Let LiteRT begin, where it is installed and can take the model. A model is checked once.

        Args:
            frontend: The model, lowered.
        """
        kind = kind_of(frontend.subgraph)
        integers = kind.startswith("integer") and "float32" not in kind
        if self._obstacle is not None or (integers and self._options.numerics.half_check != "always"):
            return
        self._obstacle = _obstacle(frontend, self._options)
        if not self._obstacle and is_installed():
            sides = frontend.interface()
            self._thread = threading.Thread(target=self._ask, args=sides, name="tflgpu-half", daemon=True)
            self._thread.start()

    def verdict(self, instance: Instance) -> HalfPrecision | None:
        """What the check finds; None of a model that needs none. Waits for LiteRT.

        Args:
            instance: The compiled model.
        """
        if self._obstacle is None:
            return None
        if self._obstacle:
            return HalfPrecision("", unchecked=self._obstacle)
        if self._thread is not None:
            self._thread.join()
        if self._judged is None and self._options.numerics.half_check != "always":
            reason = "LiteRT is not installed" if self._thread is None else "LiteRT cannot run it, or not in time"
            return HalfPrecision("", unchecked=f"{reason}; {ON_REQUEST}")
        self._inputs = self._inputs or _inputs(instance.artifact.inputs)
        try:
            results = instance.run(self._inputs, {})
        except ValueError as error:  # inputs that the model does not take
            return HalfPrecision("", unchecked=str(error))
        finally:
            instance.reset_state()
        try:
            if self._judged is not None:
                return self._by_litert(instance.artifact, results, *self._judged)
            return self._by_fp32(instance.artifact, results, None, HalfPrecision("fp32"))
        except (TflgpuError, ValueError) as error:
            return HalfPrecision("", unchecked=f"its kernels cannot be observed: {error}")

    def _ask(self, inputs: Interface, outputs: Interface) -> None:
        """Let LiteRT run the model, on a thread of its own."""
        begin = perf_counter()
        try:
            self._inputs = _inputs(inputs)
            given = {tensor: array for (tensor, _), array in zip(inputs, self._inputs, strict=True)}
            with GuardedProcess(self._options.cpu_part.trial_timeout or SECONDS) as process:
                self._judged = process.judge(self._model, given, [tensor for tensor, _ in outputs], HALF_MAX)
        except (RefusedError, CrashedError, MemoryError, OSError) as error:
            LOGGER.info("LiteRT cannot judge half precision: %s", " ".join(str(error).split()))
        LOGGER.info("LiteRT has ended after %.2f s", perf_counter() - begin)

    def _by_litert(
        self, artifact: Artifact, results: list[Array], answers: list[Array], large: dict[str, float]
    ) -> HalfPrecision:
        if [a.shape for a in results] != [a.shape for a in answers]:
            return HalfPrecision("", unchecked="its outputs have other shapes in LiteRT")
        errors = OutputErrors([info for _, info in artifact.outputs], [answers], [0])
        found = HalfPrecision(_litert(), float(errors.of(0, results).max(initial=0.0)))
        capped = _computed(artifact, large)
        if found.error <= LARGEST_ERROR and not capped:
            return found
        always = self._options.numerics.half_check == "always"
        if not capped and not always and artifact.report.model.kind.endswith("(dynamic range)"):
            reason = f"LiteRT, whose answers are off by {found.error:.2g}, rounds activations of such a model to 8 bits"
            return HalfPrecision("", unchecked=f"{reason}; {ON_REQUEST}")
        return self._by_fp32(artifact, results, capped, found)

    def _by_fp32(
        self, artifact: Artifact, results: list[Array], capped: dict[str, float] | None, found: HalfPrecision
    ) -> HalfPrecision:
        """Compare with fp32 on the device; if outputs are off or a value was capped, the results of all kernels.

        capped: the tensors beyond half, if they are known.
        """
        LOGGER.info("comparing half precision with float on the device")
        answers: dict[int, Array] = {}
        floats = trace(self._model, self._inputs, replace(self._options, precision="fp32"), answers)
        if capped is None:
            capped = _computed(artifact, _large(self._model, floats))
        chosen = {name for o in artifact.report.operators if o.code in CHOOSE for name in o.outputs}
        outputs = [
            (tensor, info, result)
            for (tensor, info), result in zip(artifact.outputs, results, strict=True)
            if info.name not in chosen and (np.dtype(info.dtype).kind == "f" or info.quantization)
        ]
        if any(answers[tensor].shape != result.shape for tensor, _, result in outputs):
            return HalfPrecision("", unchecked="its outputs have other shapes in fp32")
        right, half = [answers[tensor] for tensor, _, _ in outputs], [result for _, _, result in outputs]
        errors = OutputErrors([info for _, info, _ in outputs], [right], [0]).of(0, half)
        largest = float(errors.max(initial=0.0))
        found = replace(found, judge="fp32", error=largest)
        if largest <= LARGEST_ERROR and not capped:
            return found
        LOGGER.info("comparing the results of all kernels in half precision and in float")
        halves = trace(self._model, self._inputs, self._options)
        off = [each for each in compared(halves, floats, capped) if each.name not in chosen]
        if largest > LARGEST_ERROR:
            name = max(zip(errors, outputs, strict=True), key=lambda pair: pair[0])[1][1].name
            off.append(OffTensor(name, _sources(artifact, name), largest, 0.0))
        limit = LARGEST_ERROR if largest > LARGEST_ERROR else np.inf
        first = next((each for each in off if each.error > limit or each.extreme), None)
        return replace(found, first=first)


def _sources(artifact: Artifact, name: str) -> tuple[int, ...]:
    return tuple(o.index for o in artifact.report.operators if name in o.outputs)


def compared(halves: Sequence[Result], floats: Sequence[Result], large: dict[str, float]) -> list[OffTensor]:
    """The tensors that both runs have, in order of execution, with their errors in half precision.

    large: the extremes of tensors that are known to exceed half, by name.
    """
    known: dict[str, Array] = {}
    for result in floats:
        known.setdefault(result.tensor, result.value)
    found = []
    for result in halves:
        right = known.get(result.tensor) if result.tensor else None
        if right is None or right.shape != result.value.shape or right.dtype.kind != "f" or not right.size:
            continue
        value, right = result.value.astype(np.float64), right.astype(np.float64)
        extreme = 0.0
        if np.abs(value).max() == HALF_MAX:
            extreme = large.get(result.tensor, 0.0)
        info = TensorInfo(result.tensor, right.shape, "float32", None)
        error = float(OutputErrors([info], [[right]], [0]).of(0, [value])[0])
        found.append(OffTensor(result.tensor, result.operators, error, extreme))
    return found


def is_wanted(options: Options, *, kept: bool) -> bool:
    """Whether models in half precision are to be checked.

    Args:
        options: The caller's.
        kept: Whether the result can be kept, so that it is found once only.
    """
    choice = options.numerics.half_check
    return options.numerics.tolerance is None and (choice == "always" or (choice == "auto" and kept))


def _obstacle(frontend: Frontend, options: Options) -> str:
    """Why LiteRT's answers would be those of another model; empty if it can be asked."""
    if frontend.entry.subgraph != 0:
        return "only the file's main subgraph can be"
    if frontend.entry.bound or options.interface.uint8_inputs:
        return "its inputs are others than the file's"
    if constant_bytes(frontend.model) > MOST_BYTES:
        return f"it has more than {MOST_BYTES >> 20} MiB of constants"
    return ""


def _inputs(interface: Interface) -> list[Array]:
    return [small_picture(info) for _, info in interface]


def _computed(artifact: Artifact, large: dict[str, float]) -> dict[str, float]:
    """The tensors beyond half that operators compute.

    Constants beyond half are masks, as of attention, which add the least number that a type has: what they lead to may
    be capped.
    """
    computed = {name for o in artifact.report.operators for name in o.outputs}
    has_masks = not computed.issuperset(large)
    return {name: x for name, x in large.items() if name in computed and not (has_masks and x < 0)}


def _large(model: bytes, floats: Sequence[Result]) -> dict[str, float]:
    """The extremes beyond half of the results in float and of the file's constants, by name."""
    constants = ((t.name, t.data) for t in read_model(model).subgraphs[0].tensors if t.data is not None)
    found: dict[str, float] = {}
    for name, values in (*constants, *((r.tensor, r.value) for r in floats)):
        if values.dtype.kind == "f" and values.size:
            low, high = float(np.fmin.reduce(values, axis=None)), float(np.fmax.reduce(values, axis=None))
            if max(-low, high) > HALF_MAX:
                found[name] = high if high > -low else low
    return found


def _litert() -> str:
    with suppress(PackageNotFoundError):
        return f"LiteRT {version('ai-edge-litert')}"
    return "LiteRT"
