"""Whether half precision does for a model: checked when it is compiled for the first time, for each size of free axes.

LiteRT runs the model in float in a process of its own, while the model is planned and built here, and is waited for:
whether there is a warning does not depend on which of both is faster. Drawn inputs on which LiteRT's own answers change
as much when weights and inputs are rounded tell nothing of half precision, and are left out. Only where its answers are
far from the device's and the model is small, a tensor is beyond the range of half, or LiteRT cannot be asked for what
the caller gets (another signature, bound states, inputs of bytes), the model is compiled in float as well. If that does
not acquit half precision, the model may be compiled with more tensors in float, and judged again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tflgpu.artifact.artifact import Artifact
from tflgpu.compiler import compile_model
from tflgpu.errors import ModelError, TflgpuError
from tflgpu.fallback import is_installed
from tflgpu.fallback.guarded_process import CrashedError, GuardedProcess, RefusedError
from tflgpu.fallback.schema_objects import with_float_weights
from tflgpu.frontend.frontend import Frontend
from tflgpu.frontend.resource_variables import VARIABLE_OPERATORS
from tflgpu.measure.device_model import planned_target
from tflgpu.measure.mixed_precision.generated_inputs import (
    TEN_TIMES,
    checked_inputs,
    normalizations,
    perturbed,
    with_rounded_weights,
)
from tflgpu.measure.mixed_precision.storage_search import OutputErrors, error_of_chosen, error_of_integers
from tflgpu.measure.trace import Result, on_groups_of_the_device, trace
from tflgpu.model.reader import read_model
from tflgpu.model.tensor_info import Interface, TensorInfo
from tflgpu.options import Options
from tflgpu.report.describe import constant_bytes, kind_of
from tflgpu.report.half_precision import LARGE, LARGEST_ERROR, HalfPrecision, OffTensor
from tflgpu.report.profile import Stopwatch
from tflgpu.runtime.device_memory import DeviceMemory
from tflgpu.runtime.input_check import InputCheck
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.opencl.session import Session
from tflgpu.target import HALF_MAX, Target

Array = NDArray[Any]

Reply = TypeVar("Reply")

# The outputs of runs, one after the other.
Answers = list[list[Array]]

LOGGER = logging.getLogger(__name__)

# Most bytes of a model's constants. LiteRT keeps all tensors of a run in memory.
MOST_BYTES = 256 << 20

# Elements of all tensors of a model that is run on several sets of inputs.
MOST_ELEMENTS = 1 << 26

# Elements of all tensors of a model that is run on inputs far from zero, too: of heads and other small models, which
# compare what they are given.
MOST_COMPARED = 1 << 22

# Most kernels of a model in which the check searches for tensors that have to stay in float: it tries each tensor, with
# other kernels, which takes three times as long as compiling the model (mobilenet_v1_0.25 with 30 kernels 28 s beside
# 11, on two cores). So a little error, as rounding all that is stored may make it, is worth that in small models only.
MOST_KERNELS = 40
FEW_KERNELS = 16

# How the kind of a model ends whose activations LiteRT rounds to 8 bits.
DYNAMIC_RANGE = "(dynamic range)"

# Until LiteRT's answers are given up, where the caller sets no limit.
SECONDS = 10.0

# Runs of a model with state.
STEPS = 3

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
    """Compares a model's answers in half precision with those in float, on generated inputs or the caller's."""

    def __init__(self, model: bytes, options: Options, session: Callable[[], Session]) -> None:
        """model: the file. options: the caller's. session: opens the device on which the model runs."""
        self._model, self._options, self._session = model, options, session
        self._litert: Answers | None = None
        self._extremes: dict[str, float] | None = None  # of tensors beyond half, once these are needed
        self._floats: Answers | None = None  # of the device in fp32, once these are needed
        self.inputs: list[list[Array]] = []
        self._steps = 1
        self._obstacle: str | None = None  # None until it begins
        self._asks_litert = False
        self._in_floats = b""  # the file of a model of dynamic range, with its weights in float
        self._sides: tuple[Interface, Interface] = (), ()
        self._thread: threading.Thread | None = None
        self._worst_name = ""
        self._is_drawn = False  # whether the inputs are made up
        self._numbers: list[int] = []  # of the sets of inputs, among those that were made up at first

    @property
    def scales(self) -> list[int]:
        """A number for each set of inputs, as :class:`OutputErrors` takes them. Each set has a scale of its own. The
        scale of the set far from zero is negative, because the usual results may be much larger than its own."""
        return [-n if self._is_drawn and n > TEN_TIMES else n for n in self._numbers]

    def begin(self, frontend: Frontend) -> None:
        """Let LiteRT begin, where it is installed and can take the model. A model is checked once.

        Args:
            frontend: The model, lowered.
        """
        kind = kind_of(frontend.subgraph)
        integers = kind.startswith("integer") and "float32" not in kind
        if self._obstacle is not None or (integers and self._options.numerics.half_check != "always"):
            return
        self._obstacle = ""
        if constant_bytes(frontend.model) > MOST_BYTES:
            self._obstacle = f"it has more than {MOST_BYTES >> 20} MiB of constants"
            return
        self._sides = frontend.interface()
        self.inputs = self._drawn(self._sides[0])
        elements = sum(int(np.prod(t.shape)) for t in frontend.subgraph.tensors)
        if elements > MOST_ELEMENTS:
            del self.inputs[1:]
        elif elements > MOST_COMPARED and self._is_drawn:
            del self.inputs[TEN_TIMES + 1 :]
        self._numbers = list(range(len(self.inputs)))
        has_state = any(t.is_variable for t in frontend.subgraph.tensors)
        has_state |= any(o.code in VARIABLE_OPERATORS for o in frontend.subgraph.operators)
        self._steps = STEPS if has_state or frontend.entry.bound else 1
        is_another = frontend.entry.subgraph != 0 or frontend.entry.bound or self._options.interface.uint8_inputs
        self._asks_litert = not is_another
        if self._asks_litert and is_installed():
            if kind.endswith(DYNAMIC_RANGE) and 4 * constant_bytes(frontend.model) <= MOST_BYTES:
                with suppress(ModelError):
                    self._in_floats = with_float_weights(self._model, frontend.subgraph)
            self._thread = threading.Thread(target=self._ask, name="tflgpu-half", daemon=True)
            self._thread.start()

    def verdict(self, instance: Instance) -> HalfPrecision | None:
        """Return what the check finds; None of a model that needs none. Waits for LiteRT.

        Args:
            instance: The compiled model. Its state begins anew.
        """
        if self._obstacle is None:
            return None
        if self._obstacle:
            return HalfPrecision("", unchecked=self._obstacle)
        if self._thread is not None:
            self._thread.join()
        if self._asks_litert and self._litert is None and self._options.numerics.half_check != "always":
            reason = "LiteRT is not installed" if self._thread is None else "LiteRT cannot run it, or not in time"
            return HalfPrecision("", unchecked=f"{reason}; {ON_REQUEST}")
        try:
            return self._judged(instance)
        except (TflgpuError, ValueError) as error:  # of inputs, of outputs with other shapes, or of the plan in fp32
            return HalfPrecision("", unchecked=" ".join(str(error).split()))

    def may_be_repaired(self, artifact: Artifact, found: HalfPrecision) -> bool:
        """Whether to look for tensors to keep in float: that takes several times as long as compiling the model.

        Args:
            artifact: The model.
            found: The verdict; an output is off.
        """
        most = MOST_KERNELS if found.error > LARGE else FEW_KERNELS
        return (artifact.report.kernels or 0) <= most or bool(self._capped(artifact))

    def may_cost(self, artifact: Artifact, found: HalfPrecision) -> bool:
        """Tell whether a repair may take more memory, up to that of fp32: a large model would be much slower than its
        user expects.

        Args:
            artifact: The model.
            found: The verdict; an output is off.
        """
        return found.error > LARGE and (artifact.report.kernels or 0) <= FEW_KERNELS

    def named(self, artifact: Artifact, found: HalfPrecision) -> HalfPrecision:
        """Return the verdict with the first tensor that is off or was capped: of a small model by the results of all
        kernels, which it is compiled twice more for.

        Args:
            artifact: The model.
            found: The verdict; an output is off.
        """
        capped = self._capped(artifact)
        worst = OffTensor(self._worst_name, _sources(artifact, self._worst_name), found.error, 0.0)
        if not self._asks_litert or (artifact.report.kernels or 0) > FEW_KERNELS:
            names = (name for o in artifact.report.operators for name in o.outputs if name in capped)
            first = next((OffTensor(n, _sources(artifact, n), found.error, capped[n]) for n in names), worst)
            return replace(found, first=first)
        LOGGER.info("comparing the results of all kernels in half precision and in float")
        try:
            floats = trace(self._model, self.inputs[0], replace(self._options, precision="fp32"))
            halves = trace(self._model, self.inputs[0], self._options)
        except (TflgpuError, ValueError) as obstacle:
            LOGGER.info("kernels cannot be observed: %s", " ".join(str(obstacle).split()))
            return replace(found, first=worst)
        large = capped or _computed(artifact, _large(self._model, floats))
        chosen = _chosen(artifact)
        off = [each for each in compared(halves, floats, large) if each.name not in chosen]
        first = next((each for each in off if each.error > LARGEST_ERROR or each.extreme), worst)
        return replace(found, first=first)

    def _judged(self, instance: Instance) -> HalfPrecision:
        artifact, results, found = instance.artifact, self._runs(instance), None
        # LiteRT rounds activations of integers to steps, and the device in other places; of floats with weights of
        # dynamic range both may. Answers of other models are near enough.
        kind = artifact.report.model.kind
        is_near = kind.startswith("float32") and not kind.endswith(DYNAMIC_RANGE)
        if self._litert is not None:
            errors = self._errors(artifact, results, self._litert)
            if self._floats is None and (unstable := self._unstable(artifact, errors)):
                LOGGER.info("%d of %d sets of inputs tell nothing of half precision", len(unstable), len(self.inputs))
                self._leave_out(unstable)
                errors = [each for n, each in enumerate(errors) if n not in unstable]
                results = self._of_sets(results, unstable)
            found = self._verdict_of(errors, _litert())
            if self._floats is None and (not found.is_off or (is_near and not self.may_be_repaired(artifact, found))):
                return found
        if self._floats is None:
            LOGGER.info("comparing half precision with float on the device")
            self._floats = self._in_float()
        verdict = self._verdict_of(self._errors(artifact, results, self._floats), "fp32")
        if found is not None and self._litert is not None and verdict.is_off and not is_near:
            in_fp32, _ = max(self._errors(artifact, self._floats, self._litert))
            return replace(found, in_fp32=in_fp32) if found.error <= in_fp32 else verdict
        return verdict

    def _verdict_of(self, errors: Sequence[tuple[float, str]], judge: str) -> HalfPrecision:
        """Return the verdict from the error of each set of inputs, with the output that is off by it."""
        error, self._worst_name = max(errors, key=lambda each: each[0])
        return HalfPrecision(judge, error, inputs=len(self.inputs))

    def _unstable(self, artifact: Artifact, errors: Sequence[tuple[float, str]]) -> set[int]:
        """Return the drawn sets of inputs that half precision seems to fail, although the network amplifies any
        rounding there: in LiteRT, rounding weights and inputs changes the answers by as much as a defect.

        A picture or signal always counts.
        """
        sets = [n for n, (error, _) in enumerate(errors) if self._is_drawn and self._numbers[n] and error > LARGE]
        if not sets or self._litert is None:
            return set()
        LOGGER.info("half precision is off on drawn inputs: LiteRT shows what rounding weights and inputs does there")
        tried = [(n, inputs) for n in sets for inputs in perturbed(self.inputs[n])]
        rounded, answers = with_rounded_weights(self._in_floats or self._model), None
        with suppress(RefusedError):
            answers = self._answers_of_litert(rounded, [inputs for _, inputs in tried])
        if answers is None:
            return set()
        measure = self._measure(artifact, self._litert)
        steps = self._steps
        return {
            n
            for k, (n, _) in enumerate(tried)
            for step in range(steps)
            if measure(n * steps + step, answers[k * steps + step])[0] > LARGE
        }

    def _leave_out(self, sets: set[int]) -> None:
        """Leave out sets of inputs, and LiteRT's answers for them."""
        assert self._litert is not None
        self._litert = self._of_sets(self._litert, sets)
        self.inputs = [each for n, each in enumerate(self.inputs) if n not in sets]
        self._numbers = [number for n, number in enumerate(self._numbers) if n not in sets]

    def _of_sets(self, answers: Answers, left_out: set[int]) -> Answers:
        return [each for n, each in enumerate(answers) if n // self._steps not in left_out]

    def _capped(self, artifact: Artifact) -> dict[str, float]:
        """Return the computed tensors that exceed half in LiteRT and are stored in half, with their extremes."""
        if self._litert is None:
            return {}
        if self._extremes is None:
            first, self._extremes = self._by_tensor(self.inputs[0]), {}
            with suppress(RefusedError):
                self._extremes = self._asked(lambda process: process.extremes(self._model, first, HALF_MAX)) or {}
        floats = artifact.report.floats
        kept = {tensor.name for tensor in floats.tensors} if floats is not None else set()
        return {name: x for name, x in _computed(artifact, self._extremes).items() if name not in kept}

    def _drawn(self, interface: Interface) -> list[list[Array]]:
        """Return the caller's inputs that have the model's shapes, else some that are made up."""
        infos = [info for _, info in interface]
        given = []
        if self._options.numerics.calibration:
            session = self._session()
            check = InputCheck(infos, session)
            for each in self._options.numerics.calibration:
                values = check.values(each)
                given.append([v.read(session.queue) if isinstance(v, DeviceMemory) else v for v in values])
        fitting = [values for values in given if [v.shape for v in values] == [info.shape for info in infos]]
        if fitting:
            return fitting
        self._is_drawn = True
        return checked_inputs(infos, normalizations(self._model, len(infos)))

    def _ask(self) -> None:
        """Let LiteRT run the model, on a thread of its own. Drawn floats may become indices that it refuses; then there
        is a picture or signal alone, without negative numbers."""
        begin = perf_counter()
        positive = [[np.abs(x) if x.dtype.kind == "f" else x for x in each] for each in self.inputs[:1]]
        sets = positive if self._is_drawn else self.inputs
        for model, inputs in ((self._in_floats or self._model, self.inputs), (self._model, sets)):
            try:
                self._litert = self._answers_of_litert(model, inputs)
            except RefusedError as refusal:
                LOGGER.info("LiteRT refuses what would judge half precision: %s", " ".join(str(refusal).split()))
            else:
                self.inputs, self._numbers = inputs, self._numbers[: len(inputs)]
                break
        LOGGER.info("LiteRT has ended after %.2f s", perf_counter() - begin)

    def _answers_of_litert(self, model: bytes, sets: Sequence[Sequence[Array]]) -> Answers | None:
        """Return LiteRT's answers for sets of inputs; None if it crashes or is late. Raises RefusedError."""
        tensors = [tensor for tensor, _ in self._sides[1]]
        given = [self._by_tensor(each) for each in sets]
        flat = self._asked(lambda process: process.judge(model, given, tensors, self._steps))
        return None if flat is None else [flat[n : n + len(tensors)] for n in range(0, len(flat), len(tensors))]

    def _by_tensor(self, inputs: Sequence[Array]) -> dict[int, Array]:
        return {tensor: array for (tensor, _), array in zip(self._sides[0], inputs, strict=True)}

    def _asked(self, ask: Callable[[GuardedProcess], Reply]) -> Reply | None:
        """Return what LiteRT answers in a process of its own; None if it crashes or is late. Raises RefusedError."""
        try:
            with GuardedProcess(self._options.cpu_part.trial_timeout or SECONDS) as process:
                return ask(process)
        except (CrashedError, MemoryError, OSError) as error:
            LOGGER.info("LiteRT cannot judge half precision: %s", " ".join(str(error).split()))
            return None

    def _runs(self, instance: Instance) -> Answers:
        """Return the outputs of all runs; each set of inputs meets the initial state."""
        found: Answers = []
        for inputs in self.inputs:
            instance.reset_state()
            found += [[np.array(a) for a in instance.run(inputs, {})] for _ in range(self._steps)]
        instance.reset_state()
        return found

    def _errors(self, artifact: Artifact, results: Answers, answers: Answers) -> list[tuple[float, str]]:
        """Return for each set of inputs the part by which an output is off at most, and its name. Raises ValueError for
        outputs of other shapes."""
        if [[a.shape for a in each] for each in results] != [[a.shape for a in each] for each in answers]:
            raise ValueError("its outputs have other shapes in float")
        measure, steps = self._measure(artifact, answers), self._steps
        found = []
        for number, place in enumerate(self._numbers):
            runs = range(number * steps, (number + 1) * steps)
            error, name = max((measure(run, results[run]) for run in runs), key=lambda each: each[0])
            is_unusual = self._is_drawn and place == TEN_TIMES
            # Rounding is amplified by numbers that no layer was made for.
            found.append((0.0 if is_unusual and error <= LARGE else error, name))
        return found

    def _measure(self, artifact: Artifact, answers: Answers) -> Callable[[int, Sequence[Array]], tuple[float, str]]:
        """Return a function that tells by what part outputs are off, of the run with a number, and which is off the
        furthest."""
        infos = [info for _, info in artifact.outputs]
        chosen = _chosen(artifact)
        floats = [n for n, i in enumerate(infos) if i.name not in chosen and (_is_float(i) or i.quantization)]
        scales = [scale for scale in self.scales for _ in range(self._steps)]
        measured = OutputErrors([infos[n] for n in floats], [[run[n] for n in floats] for run in answers], scales)

        def measure(number: int, result: Sequence[Array]) -> tuple[float, str]:
            answer = answers[number]
            errors = dict(zip(floats, map(float, measured.of(number, [result[n] for n in floats])), strict=True))
            for n in set(range(len(infos))) - errors.keys():
                compare = error_of_chosen if infos[n].name in chosen else error_of_integers
                errors[n] = compare(answer[n], result[n])
            return max(((errors[n], i.name) for n, i in enumerate(infos)), key=lambda each: each[0], default=(0.0, ""))

        return measure

    def _in_float(self) -> Answers:
        """Return the answers of the model in fp32, as the caller has it otherwise."""
        session = self._session()
        options = replace(self._options, precision="fp32")

        def run(target: Target) -> Answers:
            artifact, *_ = compile_model(self._model, options, replace(target, executor="launch"))
            instance = Instance(artifact, session, Stopwatch(), None, options.cpu_part.trial_timeout)
            return self._runs(instance)

        return on_groups_of_the_device(planned_target(session.device, options), run)


def _chosen(artifact: Artifact) -> set[str]:
    """Return the outputs of operators that choose."""
    return {name for o in artifact.report.operators if o.code in CHOOSE for name in o.outputs}


def _is_float(info: TensorInfo) -> bool:
    return np.dtype(info.dtype).kind == "f"


def _sources(artifact: Artifact, name: str) -> tuple[int, ...]:
    return tuple(o.index for o in artifact.report.operators if name in o.outputs)


def compared(halves: Sequence[Result], floats: Sequence[Result], large: dict[str, float]) -> list[OffTensor]:
    """Return the tensors that both runs have, in order of execution, with their errors in half precision.

    Args:
        halves: Results of every kernel in half precision.
        floats: Results of every kernel in float.
        large: The extremes of tensors that are known to exceed half, by name.
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


def _computed(artifact: Artifact, large: dict[str, float]) -> dict[str, float]:
    """Return the tensors beyond half that operators compute.

    Constants beyond half are masks, as of attention, which add the least number that a type has: what they lead to may
    be capped.
    """
    computed = {name for o in artifact.report.operators for name in o.outputs}
    has_masks = not computed.issuperset(large)
    return {name: x for name, x in large.items() if name in computed and not (has_masks and x < 0)}


def _large(model: bytes, floats: Sequence[Result]) -> dict[str, float]:
    """Return the extremes beyond half of the results in float and of the file's constants, by name."""
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
