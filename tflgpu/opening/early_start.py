"""Start in tiers: LiteRT runs a model until its kernels are compiled."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakMethod

from tflgpu.artifact.artifact import Artifact
from tflgpu.artifact.cache import content_hash
from tflgpu.errors import UnsupportedError
from tflgpu.fallback.guarded_process import GuardedProcess
from tflgpu.fallback.guarded_requests import litert_shapes
from tflgpu.fallback.submodel import cpu_partition
from tflgpu.frontend.frontend import EVERY, lower_model
from tflgpu.model.model_source import ModelContent
from tflgpu.model.reader import read_model
from tflgpu.opening.opener import Opener
from tflgpu.options import CpuPart, Options
from tflgpu.report.describe import make_report
from tflgpu.report.profile import Stopwatch
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.opencl.process import Using

LOGGER = logging.getLogger(__name__)

REASON = "LiteRT runs it until its kernels are compiled"


def open_early(opener: Opener, options: Options, clock: Stopwatch) -> Instance | None:
    """Return a model that LiteRT runs; None if the model has to start compiled.

    Args:
        opener: Of the model and the device.
        options: The caller's choices.
        clock: Takes the time of each stage.

    Raises:
        ModelError: The model is damaged.
        ValueError: The options do not fit the model.
    """
    if options.interface.bound or options.cache == "require":
        return None
    by_litert = CpuPart(operators=(EVERY,), trial_timeout=None)
    try:
        artifact = _artifact(opener, replace(options, fallback="auto", cpu_part=by_litert))
        clock.lap("plan")
        session = opener.await_session(clock)
        return None if artifact is None else Instance(artifact, session, clock)
    except UnsupportedError as refusal:
        LOGGER.info("the model starts compiled: %s", refusal)
        return None


def _artifact(opener: Opener, options: Options) -> Artifact | None:
    """Return the model for LiteRT, as :func:`tflgpu.compiler.compile_model` would, whose imports take longer."""
    data = opener.model.bytes
    opener.content_hash = content_hash(data)
    model = read_model(data)
    # A variable tensor belongs to one interpreter or executor, so that its value could not be taken along.
    if any(tensor.is_variable for part in model.subgraphs for tensor in part.tensors):
        return None
    with GuardedProcess(options.cpu_part.trial_timeout) as process:
        frontend = lower_model(model, options, litert_shapes(data, process), opener.target.missing_types)
        partitions = frontend.partitions()
    if any(partition.on_device for partition in partitions):
        return None
    report = make_report(frontend, partitions, [])
    operators = tuple(replace(each, reasons=(REASON,)) for each in report.operators)
    return Artifact(
        *frontend.interface(),
        tuple(cpu_partition(data, frontend, partition) for partition in partitions),
        replace(report, operators=operators, advice=()),
        frontend.entry.signature,
        frontend.signatures(),
        (),
        *frontend.variables_between(partitions),
    )


class Compilation:
    """Compiles a model in a thread, and hands it over."""

    def __init__(
        self,
        opener: Opener,
        model: ModelContent,
        options: Options,
        hand_over: WeakMethod[Callable[[Instance, Stopwatch], None]],
    ) -> None:
        """Start the thread.

        Args:
            opener: Of the model and the device.
            model: The file.
            options: The caller's choices.
            hand_over: Takes the instance, with the times of its stages, if its object still lives.
        """
        self._opener, self._model, self._options, self._hand_over = opener, model, options, hand_over
        self._is_over = threading.Event()
        self._error: Exception | None = None
        threading.Thread(target=self._compile, name="tflgpu-compilation", daemon=True).start()

    @property
    def has_succeeded(self) -> bool:
        """True once the model was handed over."""
        return self._is_over.is_set() and self._error is None

    def wait(self, timeout: float | None) -> bool:
        """Wait until the model is compiled.

        Args:
            timeout: Seconds; None for no limit.

        Returns:
            Whether it was handed over.

        Raises:
            Exception: What compiling raised.
        """
        self._is_over.wait(timeout)
        if self._error is not None:
            raise self._error
        return self._is_over.is_set()

    def _compile(self) -> None:
        clock = Stopwatch()
        try:
            with self._model.naming_file(), Using():  # the end of Python waits for what is inside
                instance = self._opener.open(self._options, clock)
                if (hand_over := self._hand_over()) is not None:
                    hand_over(instance, clock)
        except Exception as error:  # whatever it is: :meth:`wait` raises it to whom it concerns
            LOGGER.warning("LiteRT goes on running the model, which cannot be compiled: %s", error)
            self._error = error
        finally:
            self._is_over.set()
