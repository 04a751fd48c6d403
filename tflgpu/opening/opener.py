"""Open a model on a device: find it in the cache, or compile it, check it and keep it there."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tflgpu.artifact import serializer
from tflgpu.artifact.artifact import Artifact
from tflgpu.artifact.cache import Cache, Key, content_hash, warn_once
from tflgpu.artifact.executable import SharedConstants
from tflgpu.errors import BuildError, CacheMissError, DeviceError, TflgpuError, UnsupportedError
from tflgpu.measure.device_model import planned_target
from tflgpu.model.model_source import ModelContent, ModelSource
from tflgpu.options import Options
from tflgpu.report.half_precision import LARGEST_ERROR, NOT_ASKED, NOT_KEPT, HalfPrecision
from tflgpu.report.profile import Stopwatch
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.opencl.build import WideGroupsError, build_together, load_compiler
from tflgpu.runtime.opencl.clock import fastest
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.process import Using
from tflgpu.runtime.opencl.session import DeviceFailures, Session, SessionOpening
from tflgpu.target import Target

if TYPE_CHECKING:
    from tflgpu.frontend.frontend import Frontend
    from tflgpu.measure.half_check import HalfCheck


def open_fastest(
    artifacts: Sequence[Artifact],
    session: Session,
    clock: Stopwatch,
    cache: Cache | None = None,
    trial_timeout: float | None = None,
    *,
    drafts: bool = False,
) -> Instance:
    """Return an instance of the artifact that the device runs in the least time. The errors are those of
    :class:`Instance`.

    If there are several artifacts, one that raises DeviceError is skipped, and none is compiled as a draft.

    Args:
        artifacts: Those of one model.
        session: The device.
        clock: Takes the times of building and of measuring.
        cache: Where binaries may be; None for no cache.
        trial_timeout: Seconds for the first run of LiteRT in a guarded process; None for no limit of the caller's.
        drafts: Whether programs may be compiled in less time, to slower code.
    """
    if len(artifacts) == 1:
        return Instance(artifacts[0], session, clock, cache, trial_timeout, drafts=drafts)
    rivals = []
    pieces = [piece for artifact in artifacts for piece in artifact.pieces]
    built = build_together({piece.source: piece.executable.parts for piece in pieces}, session, cache)
    for artifact in artifacts:
        with suppress(DeviceError), DeviceFailures(session.device, "trying an executor"):
            instance = Instance(artifact, session, clock, cache, trial_timeout, built=built)
            instance.warm_up()
            rivals.append(instance)
    if not rivals:
        return Instance(artifacts[0], session, clock, cache, trial_timeout)
    winner = fastest(rivals, Instance.launch)
    winner.reset_state()
    clock.lap("executors")
    return winner


LOGGER = logging.getLogger(__name__)

# For runs that look for tensors to keep in float, where the check of half precision finds too large an error.
REPAIR_SECONDS = 3.0

# Times the memory of activations that a repair of a little error may take.
DEAR = 1.1


class Opener:
    """Opens one model on one device, for any shapes of its inputs.

    Attributes:
        model: The file.
        device: The device that it runs on.
        session_opening: The device's context and queue, which a thread may still be opening.
        shared: Constants of other signatures of the file that the device has already.
        target: What planning knows of the device before any kernel is built. The cache goes by it.
        planned: What plans are made for: the target, and what compiling has taught of it since.
        content_hash: The file's, once the model was opened.
    """

    def __init__(
        self,
        model: ModelContent,
        options: Options,
        clock: Stopwatch,
        given: Session | None = None,
        shared: Sequence[SharedConstants] = (),
    ) -> None:
        """Choose the device, unless a session is given, and begin to open it.

        Args:
            model: The file.
            options: The caller's choices.
            clock: Takes the time of each stage.
            given: A session that is open already.
            shared: Constants of other signatures of the file that this session has.
        """
        self.model, self.shared, self.content_hash = model, tuple(shared), ""
        self.device = given.device if given else choose(options.device, options.threads)
        clock.lap("device")
        self.session_opening = SessionOpening(self.device, given)
        self.target = self.planned = planned_target(self.device, options, partial(self.await_session, clock))
        if self.target.family == "gpu":
            clock.lap("measure")
        LOGGER.info("device %d: %s, %s", self.device.index, self.device.name, self.target.precision)

    def open(self, options: Options, clock: Stopwatch) -> Instance:
        """Return the model, from the cache if it can be, else compiled and kept there.

        Args:
            options: The caller's choices, with the shapes of inputs that are wanted.
            clock: Takes the time of each stage.

        Raises:
            Exception: What :func:`tflgpu.compile` does.
        """
        with DeviceFailures(self.device, "preparing the model"):
            instance = _Opening(self, options, clock).open()
        instance.release_constants()
        if not instance.artifact.has_free_axes:
            self.model.release()
        return instance

    def known(self, options: Options, clock: Stopwatch | None = None) -> Instance | None:
        """Return the model as the cache has it; None if it has to be compiled.

        Args:
            options: The caller's choices, with the shapes of inputs that are wanted.
            clock: Takes the time of each stage.
        """
        if options.cache == "off":
            return None
        try:
            return self.open(replace(options, cache="require"), clock or Stopwatch())
        except CacheMissError:
            return None

    def have_same_rows(self, one: Options, other: Options) -> bool:
        """Whether a batch of other shapes of inputs can be computed by runs of what is compiled.

        Args:
            one: The caller's choices, with the shapes that are compiled.
            other: The same, with the shapes that are wanted.
        """
        from tflgpu.frontend.lowered import has_same_rows

        if other.cache == "require":
            return False
        try:
            lowered = [_lower(self.model, options, self.target) for options in (one, other)]
        except (TflgpuError, ValueError):  # which compiling raises, too
            return False
        return has_same_rows(*(frontend.lowered for frontend in lowered))

    @property
    def session(self) -> Session:
        """The device's context and queue, once the driver has opened them. Raises DeviceError if it cannot."""
        return self.session_opening.session()

    def await_session(self, clock: Stopwatch) -> Session:
        """Return the session, once the driver has opened it: it may take longer for that than planning takes.

        Args:
            clock: Counts the time from its last lap on as "context".
        """
        session = self.session
        clock.lap("context")
        return session


class _Opening:
    """Opens a model once, with the options for one set of input shapes."""

    def __init__(self, opener: Opener, options: Options, clock: Stopwatch) -> None:
        self._opener, self._options, self._clock = opener, options, clock
        self._cache = serializer.open_cache(options)
        self._timeout = options.cpu_part.trial_timeout
        self._await_session = partial(opener.await_session, clock)
        self._half_check: HalfCheck | None = None  # begins beside the first compilation

    def open(self) -> Instance:
        """Return the model from the cache if it can be; else compile and keep it."""
        if self._cache is not None:
            return self._open_with_cache(self._cache)
        self._opener.content_hash = content_hash(self._opener.model.bytes)
        return self._check_half(self._start(None, None), None)

    def _open_with_cache(self, cache: Cache) -> Instance:
        key, stored = self._find(cache)
        self._opener.content_hash = key.fields["content"]
        device = self._opener.device
        if stored is None and self._options.cache == "require":
            raise CacheMissError(
                f"the cache has no artifact {key.name} of this model for {device.name}, driver {device.driver}; "
                "`tflgpu precompile-cache` makes it"
            )
        LOGGER.info("the cache %s %s", "does not have" if stored is None else "has", key.name)
        try:
            with DeviceFailures(device, "loading the model"):
                instance = self._start(stored, cache)
        except MemoryError:
            raise
        except Exception as error:  # an entry, or a program of the cache, may be another one than its key says
            if stored is None and not isinstance(error, DeviceError):
                raise
            self._await_session()  # raises what is no fault of the cache
            warn_once("binary", f"the model cannot be loaded with what the cache holds: {error}; it is compiled anew")
            stored, instance = None, self._start(None, None)
        if cache.is_writable and instance.keep_binaries(cache, self._clock):
            artifact = instance.artifact
            del instance  # and with it what it holds on the device
            with DeviceFailures(device, "loading the model"):
                instance = self._start(artifact, cache)
        instance = self._check_half(instance, stored)
        if instance.artifact != stored:
            serializer.store(cache, key, instance.artifact, self._opener.model.name)
            self._clock.lap("store")
        return instance

    def _find(self, cache: Cache) -> tuple[Key, Artifact | None]:
        """Return what the cache knows the model by, and its artifact, if it has that."""
        opener = self._opener
        asked = opener.model, self._options, opener.device.identity, opener.target, cache, self._clock
        key, stored = serializer.find(*asked, opener.shared)
        if stored is None and opener.shared and not cache.is_writable:  # perhaps with all of its weights
            key, stored = serializer.find(*asked)
        return key, stored

    def _start(self, stored: Artifact | None, cache: Cache | None) -> Instance:
        """Build the artifact, or the fastest of newly compiled ones.

        Kernels whose built forms allow only smaller groups than were planned are planned again for those.
        """
        drafts = stored is None and cache is not None and cache.is_writable
        while True:
            try:
                rivals = self._compile(cache) if stored is None else (stored,)
                return open_fastest(rivals, self._await_session(), self._clock, cache, self._timeout, drafts=drafts)
            except WideGroupsError as error:
                stored, self._opener.planned = None, self._opener.planned.with_group_sizes(error.sizes)

    def _compile(self, cache: Cache | None) -> tuple[Artifact, ...]:
        """Compile the model: several artifacts if only measuring can tell which of them is the fastest."""
        opener, options = self._opener, self._options
        load_compiler(opener.device.handle, opener.session_opening)
        tuner = calibrator = None
        if options.execution.tuning != "none":
            from tflgpu.measure.tuner import DeviceTuner

            tuner = DeviceTuner(self._await_session(), options.execution.tuning, cache)
        if options.numerics.tolerance is not None:
            from tflgpu.measure.mixed_precision.calibrator import Calibrator

            limit = options.numerics.tolerance, options.numerics.calibration or ()
            calibrator = Calibrator(*limit, self._await_session(), cache, self._timeout)
        with _without_collections() if tuner is None and calibrator is None else nullcontext():
            from tflgpu.compiler import compile_model  # a warm start must not import it

            fixed = self._clock, tuner, calibrator, opener.shared, self._begin_half_check
            artifacts = compile_model(opener.model.bytes, options, opener.planned, *fixed)
            integers = artifacts[0].report.integers
            if integers is not None and integers.products and self._learn_of_integer_unit(cache):
                artifacts = compile_model(opener.model.bytes, options, opener.planned, *fixed)
        if not artifacts[0].has_free_axes:
            opener.model.release()
        return artifacts

    def _learn_of_integer_unit(self, cache: Cache | None) -> bool:
        """Plan without the device's instructions for integers if their sums are wrong. Return whether they are."""
        from tflgpu.measure.integer_check import without_wrong_unit

        opener, before = self._opener, self._opener.planned
        opener.planned = without_wrong_unit(before, opener.device, cache, self._await_session)
        self._clock.lap("measure")
        return opener.planned != before

    def _begin_half_check(self, frontend: Frontend | None = None) -> None:
        """Let the check of half precision begin, where one is wanted.

        Args:
            frontend: The lowered model, which is being compiled; by default the model is lowered for the check.
        """
        opener, options = self._opener, self._options
        if opener.target.storage != "half":
            return
        from tflgpu.measure.half_check import HalfCheck, is_wanted

        kept = self._cache is not None and self._cache.is_writable
        if self._half_check is None and is_wanted(options, kept=kept):
            self._half_check = HalfCheck(opener.model.bytes, options, self._await_session)
        if self._half_check is not None:
            self._half_check.begin(frontend or _lower(opener.model, options, opener.target))

    def _check_half(self, instance: Instance, stored: Artifact | None) -> Instance:
        """Write what the check of half precision finds into the report; return another instance, if that is nearer.

        What was stored without a check is checked now, if the caller wants one.
        """
        if self._opener.target.storage != "half" or self._options.numerics.tolerance is not None:
            return instance
        half = instance.artifact.report.half
        if self._half_check is None and stored is not None and half is not None and half.unchecked == NOT_ASKED:
            self._begin_half_check()
        check = self._half_check
        if check is None:
            if stored is not None:
                return instance
            is_off = self._options.numerics.half_check == "off"
            return _with_half(instance, HalfPrecision("", unchecked=NOT_ASKED if is_off else NOT_KEPT))
        self._clock.lap("upload")
        half = check.verdict(instance)
        if half is not None and half.is_off and check.may_be_repaired(instance.artifact, half):
            instance, half = self._repair_half(instance, half, check)
        if half is not None and half.is_off:
            half = check.named(instance.artifact, half)
        self._clock.lap("half check")
        return _with_half(instance, half)

    def _repair_half(self, instance: Instance, half: HalfPrecision, check: HalfCheck) -> tuple[Instance, HalfPrecision]:
        """Return the model with more tensors in float, and what the check finds then; as it was, if that is no
        better."""
        from tflgpu.compiler import compile_model
        from tflgpu.measure.mixed_precision.calibrator import Calibrator

        LOGGER.info("half precision is off by %.2g: looking for tensors to keep in float", half.error)
        opener, session = self._opener, self._await_session()
        limit = LARGEST_ERROR, check.inputs, session, self._cache, self._timeout
        some = opener.planned, Calibrator(*limit, scales=check.scales, seconds=REPAIR_SECONDS)
        every = replace(opener.planned, storage="float"), None
        may_cost = check.may_cost(instance.artifact, half)  # then it may be in float as a whole, too
        for target, calibrator in (some, every) if may_cost else (some,):
            try:
                rest = self._clock, None, calibrator, opener.shared
                artifacts = compile_model(opener.model.bytes, self._options, target, *rest)
                repaired = open_fastest(artifacts, session, self._clock, self._cache, self._timeout)
                after = check.verdict(repaired)
            except (BuildError, DeviceError, UnsupportedError, ValueError, WideGroupsError) as obstacle:
                LOGGER.info("no tensors can be kept in float: %s", obstacle)
                continue
            is_right = after is not None and not after.unchecked and not after.is_off
            if after is not None and is_right and (may_cost or not _costs_much(repaired, instance)):
                in_float = repaired.artifact.report.floats is None
                return repaired, replace(after, repaired=half.error, in_float=in_float)
        return instance, half


def lower_for_device(model: ModelSource, options: Options) -> Frontend | None:
    """Lower a model as :func:`tflgpu.compile` does; None if LiteRT has to try a part of it first.

    Nothing is compiled.

    Args:
        model: A path, bytes or a buffer.
        options: The caller's choices.

    Raises:
        Exception: What :func:`tflgpu.compile` raises of a model, its operators and the device.
    """
    content = ModelContent(model)
    with content.naming_file(), Using():
        target = choose(options.device, options.threads).target(options)
        frontend = _lower(content, options, target)
        return frontend if all(p.on_device for p in frontend.partitions()) else None


def _lower(model: ModelContent, options: Options, target: Target) -> Frontend:
    from tflgpu.compiler import lower_file  # a warm start must not import the compiler

    return lower_file(model.bytes, options, target.missing_types)


def _costs_much(repaired: Instance, instance: Instance) -> bool:
    """Whether tensors in float take so much more memory that the caller had better choose."""
    before, after = (each.artifact.report.arena_bytes or 0 for each in (instance, repaired))
    return after > DEAR * before


def _with_half(instance: Instance, half: HalfPrecision | None) -> Instance:
    """Return the instance, with this in its report."""
    instance.artifact = replace(instance.artifact, report=replace(instance.artifact.report, half=half))
    return instance


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage: the compiler's modules and a plan are not, and looking for it takes up to 30 ms."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:  # the caller has frozen nothing
            gc.freeze()
            gc.unfreeze()  # what is new is old from now on, without a collection
        if was_enabled:
            gc.enable()
