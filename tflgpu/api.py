"""``tflgpu.compile`` and what it returns."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import proxy, ref

from numpy.typing import ArrayLike, NDArray

from tflgpu.artifact import serializer
from tflgpu.artifact.artifact import Artifact, CpuPartition
from tflgpu.artifact.cache import Cache, content_hash, warn_once
from tflgpu.checking.option_fields import whole_number
from tflgpu.errors import (
    BuildError,
    CacheMissError,
    DeviceError,
    DeviceWarning,
    FallbackWarning,
    PrecisionWarning,
    UnsupportedError,
    warn_caller,
)
from tflgpu.graph.layout import Shape
from tflgpu.measure.device_model import planned_target
from tflgpu.model.model_source import ModelContent, ModelSource
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import Options, Shapes, check_options
from tflgpu.report.half_precision import LARGE, LARGEST_ERROR, NOT_ASKED, HalfPrecision
from tflgpu.report.profile import Profile
from tflgpu.report.report import Report
from tflgpu.report.stopwatch import Stopwatch
from tflgpu.runtime.device_memory import Buffer, Queue
from tflgpu.runtime.input_check import Given, Inputs, Outputs
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.kernel_times import kernel_times
from tflgpu.runtime.model_variables import ModelVariables
from tflgpu.runtime.opencl.build import WideGroupsError, load_compiler
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.process import Using, is_orphan
from tflgpu.runtime.opencl.session import DeviceFailures, Opening, Session, session_on
from tflgpu.runtime.rival_instances import open_fastest
from tflgpu.runtime.runner import Runner
from tflgpu.runtime.signatures import Family, Signatures
from tflgpu.runtime.submission import Submission

if TYPE_CHECKING:
    from tflgpu.frontend.frontend import Frontend
    from tflgpu.measure.half_check import HalfCheck
    from tflgpu.model.metadata.declarations import ModelMetadata
    from tflgpu.report.table import Table
    from tflgpu.runtime.bindings import Bind
    from tflgpu.runtime.model_session import ModelSession, OpenSignature

LOGGER = logging.getLogger(__name__)

# For runs that look for tensors to keep in float, where the check of half precision finds too large an error.
REPAIR_SECONDS = 3.0

# Kernels of a model that is small: it may be repaired by keeping all of it in float.
FEW_KERNELS = 16

# Times the memory of activations that a repair of a little error may take.
DEAR = 1.1

Found = TypeVar("Found")


def compile(model: ModelSource, options: Options | None = None, *, queue: Queue | None = None) -> CompiledModel:
    """Compile a .tflite model for an OpenCL device.

    Args:
        model: A path, bytes or a buffer.
        options: By default those of :class:`Options`.
        queue: An in-order queue of pyopencl, on whose device and in whose context to run, whatever ``Options.device``
            and ``Options.threads`` say; another model's, for instance, that is to share arrays on the device. By
            default the model has one of its own.

    Raises:
        ModelError: The model is damaged.
        UnsupportedError: An operator cannot run on the device; it has every reason.
        DeviceError: There is no fitting device.
        BuildError: The device's compiler fails.
        ValueError: The signature or an output is unknown, or the queue does not fit.
        CacheMissError: The cache is required to have the model and does not.
        CacheDirectoryError: Other users can write to the cache.
    """
    content = ModelContent(model)
    with content.naming_file(), Using():
        return CompiledModel(content, check_options(options), queue)


def inspect(model: ModelSource, options: Options | None = None) -> Report:
    """Return what of a model can run on a device, and why not the rest. No device is needed.

    Args:
        model: A path, bytes or a buffer.
        options: By default those of :class:`Options`.

    Returns:
        A report without kernels.

    Raises:
        ModelError: The model is damaged.
        ValueError: The signature or an output is unknown.
    """
    from tflgpu.compiler import inspect_model  # a warm start must not import the compiler

    content = ModelContent(model)
    with content.naming_file():
        return inspect_model(content.bytes, check_options(options))


def lowered_model(model: ModelSource, options: Options) -> Frontend | None:
    """Return a model as :func:`compile` would lower it; None if LiteRT has to try a part of it first.

    Nothing is compiled. Raises what :func:`compile` does of a model, its operators and the device.
    """
    from tflgpu.compiler import lower_file  # a warm start must not import the compiler

    content = ModelContent(model)
    with content.naming_file(), Using():
        target = choose(options.device, options.threads).target(options)
        frontend = lower_file(content.bytes, options, target.missing_types)
        return frontend if all(p.on_device for p in frontend.partitions()) else None


class CompiledModel:
    """A model on a device. Made by :func:`tflgpu.compile`; thread-safe, picklable, a context manager.

    Attributes:
        options: As the model was compiled with.
        device: The device that it runs on.
        seconds: What each stage of compiling took, in seconds.
    """

    def __init__(
        self,
        model: ModelContent,
        options: Options,
        queue: Queue | None = None,
        *,
        given: Session | None = None,
        family: Family[CompiledModel] | None = None,
        variables: ModelVariables | None = None,
    ) -> None:
        """given: of the model of another signature, beside which this one runs. family: which that has.

        variables: of the opened model, if that was opened before with other options.
        """
        self._model, self.options = model, options
        self._own_queue = queue is None
        clock = Stopwatch()
        given = given if queue is None else session_on(queue)
        self.device = given.device if given else choose(options.device, options.threads)
        clock.lap("device")
        self._opening = Opening(self.device, given)
        self._shared = () if family is None else tuple(shared for shared, _ in family.constants)
        self._half_check: HalfCheck | None = None
        self._target = self._planned = planned_target(self.device, options, partial(self._opened, clock))
        if self._target.family == "gpu":
            clock.lap("measure")
        LOGGER.info("device %d: %s, %s", self.device.index, self.device.name, self._target.precision)
        with DeviceFailures(self.device, "preparing the model"):
            instance = self._instantiate(options, clock)
        self.seconds: Mapping[str, float] = clock.laps
        self._artifact: Artifact = instance.artifact
        self._constants = tuple(instance.constants())
        self._variables = variables or (ModelVariables() if family is None else family.variables)
        runs = self._instantiate_for, self._variables
        self._runner = Runner(self.inputs, self._opening.session(), instance, *runs)
        self._states: ModelSession | None = None if family is None else family.states
        self._family_beside = None if family is None else ref(family)
        self._own_family = self._new_family() if family is None else None
        if any(isinstance(partition, CpuPartition) for partition in self._artifact.partitions):
            warn_caller(self.report.warning, FallbackWarning)
        _warn_of_half(instance)
        if options.execution.executor == "persistent" and self.executor == "launch" and self.report.kernels:
            largest = self.device.limits.allocation_bytes
            warn_caller(
                f"each kernel has a launch of its own: a persistent kernel needs one buffer for all of the model's "
                f"memory, and {self.device.name} allows {largest:,} bytes in one",
                DeviceWarning,
            )

    @cached_property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The model's inputs, in the order in which ``run`` takes them."""
        return tuple(info for _, info in self._artifact.inputs)

    @cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The model's outputs, in the order of the file or of ``Options.interface.outputs``."""
        return tuple(info for _, info in self._artifact.outputs)

    @property
    def report(self) -> Report:
        """Report of what runs where, and what compiling cost."""
        return self._artifact.report

    @property
    def precision(self) -> str:
        """Precision that ``Options.precision`` became: ``"fp32"``, ``"fp16"``, ``"fp16_fast"``; with a tolerance
        ``"mixed"``."""
        return self._target.precision if self.report.mixed is None else "mixed"

    @property
    def executor(self) -> Literal["launch", "persistent", "claiming"]:
        """Executor that ``Options.execution.executor`` became; the parts of a model that cannot be claimed are
        launched."""
        return self._artifact.executor

    @property
    def source(self) -> str:
        """The generated OpenCL C of the device's part; of all its parts, if the CPU's operators or loops split it."""
        return "\n".join(piece.source for piece in self._artifact.pieces)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of classes that the file's metadata have for its first output with such; empty without any.

        The file is read again. Raises ModelError if it has changed since, or its metadata are damaged, OSError if it
        cannot be read.
        """
        from tflgpu.model.metadata.labels_in_file import labels_in_file  # a start does without

        return tuple(self._of_file(labels_in_file))

    @cached_property
    def metadata(self) -> ModelMetadata:
        """The file's metadata of its inputs and outputs: normalizations, and names of packed files of labels.

        Empty without metadata. Reads the file again, and raises what :attr:`labels` does.
        """
        from tflgpu.model.metadata.metadata_reader import read_metadata  # a start does without

        return self._of_file(read_metadata)

    @property
    def queue(self) -> Queue:
        """The in-order queue on which the model runs; arrays on the device have to belong to its context."""
        return self._opening.session().queue

    def run(self, inputs: Inputs, outputs: Outputs | None = None) -> dict[str, NDArray[Any]]:
        """Run one inference, and wait for it.

        Axes that the file leaves open may have any size; the first run with new ones plans and compiles for them.
        Ctrl-C ends the wait for a long run. The device goes on with it, and the next run begins after it.
        In a signal handler, in the middle of another call, a run has variables of its own.

        Args:
            inputs: NHWC arrays by name, in order, or one alone: of numpy or of any library whose arrays have
                ``__dlpack__``, ``__array__`` or the buffer protocol and lie in the host's memory. An input may be a
                pyopencl Array or Buffer, which is read where it is.
            outputs: Arrays to fill, by name of output: Arrays or Buffers of pyopencl, in which it stays on the device,
                or writable arrays of the host, such as those of numpy and PyTorch.

        Returns:
            Every output by name, but those in ``outputs``: arrays of the host, of the shapes in :attr:`outputs`.

        Raises:
            TypeError: Inputs or outputs do not fit.
            ValueError: Inputs or outputs do not fit, or the model is closed.
            DeviceError: The device fails.
        """
        if self._states is not None:
            return self._states.run(self._artifact.signature, self._by_name(inputs), outputs)
        return self._runner.run(inputs, outputs)

    def __call__(self, *inputs: Inputs, **by_name: Given) -> dict[str, NDArray[Any]]:
        """Run one inference: ``model(x)``, ``model(x, y)``, ``model(x, mask=y)``, ``model({"x": x, "mask": y})``.

        Args:
            inputs: As of :meth:`run` if it is one and none is given by name; else arrays for the first inputs.
            by_name: Inputs by name. Names that are no words of Python need a dictionary.

        Returns:
            Every output by name.

        Raises:
            TypeError: Inputs do not fit, or one is given twice.
            ValueError: Inputs do not fit, or the model is closed.
            DeviceError: The device fails.
        """
        if not by_name:
            given: Any = inputs[0] if len(inputs) == 1 else list(inputs)
            return self.run(given)
        placed: dict[str, Any] = dict(zip((info.name for info in self.inputs), inputs, strict=False))
        if len(placed) < len(inputs) or placed.keys() & by_name.keys():
            raise TypeError(
                f"{len(inputs)} inputs in order and {sorted(by_name)} by name were given; the model has "
                f"{[info.name for info in self.inputs]}"
            )
        return self.run(placed | by_name)

    def enqueue(self, inputs: Inputs, outputs: Outputs | None = None) -> Submission:
        """Start an inference and return.

        Inferences follow each other on the queue in the order of the calls, so that variables change as by runs.
        Inputs on the host are copied before this returns. Arrays on the device are kept until the inference is over,
        and read and written up to then. If 8 inferences are in flight, this waits for the first of them; of a model of
        which operators run on the CPU, or in a loop or a branch that the host decides, it waits for the result.

        Args:
            inputs: As of :meth:`run`.
            outputs: As of :meth:`run`.

        Returns:
            A submission. Its ``wait`` has the result, and raises the errors of the device.

        Raises:
            TypeError: Inputs or outputs do not fit.
            ValueError: Inputs or outputs do not fit, or the model is closed.
            DeviceError: The device fails.
        """
        if self._states is not None:
            return self._states.enqueue(self._artifact.signature, self._by_name(inputs), outputs)
        return self._runner.enqueue(inputs, outputs)

    def run_many(self, many: Iterable[Inputs]) -> Iterator[dict[str, NDArray[Any]]]:
        """Run one inference after another, while the next ones are in flight.

        The iteration may be left early; the model can be used as before.

        Args:
            many: Inputs as of :meth:`run`. They are taken up to three inferences ahead (on CPUs one after another), and
                copied at once: an array may be filled again.

        Yields:
            The outputs of each inference, in order.

        Raises:
            Exception: What an inference raises, or ``many``, in its place. It ends the iteration.
        """
        if self._states is not None:
            return (self.run(inputs) for inputs in many)
        return self._runner.run_many(many)

    def pinned_array(self, name: str) -> NDArray[Any]:
        """Zeros of an input's shape and element type in pinned memory, which a GPU reads without a copy.

        A run with this array as input, filled again and again, saves the copy to such memory.

        Args:
            name: Of an input.

        Raises:
            ValueError: There is no such input.
        """
        return self._runner.pinned_array(name)

    def device_buffer(self, name: str) -> Buffer:
        """Return a buffer of pyopencl for an input, in which another model on this queue may leave an output.

        Args:
            name: Of an input.

        Returns:
            A new buffer of the bytes of the shape that the model was compiled for.

        Raises:
            ValueError: There is no such input.
            DeviceError: Memory runs out.
        """
        return self._runner.device_buffer(name)

    @property
    def signatures(self) -> Mapping[str, CompiledModel]:
        """The signatures of the file by key, in its order. Each is compiled when it is first asked for.

        They have this model's device, queue and options, and share copies of equal weights with it. They are closed
        with it, and live as long as it does.
        """
        return Signatures(self._family, self)

    def session(self, bind: Bind = "matching") -> ModelSession:
        """States of their own for runs of the file's signatures, such as a cache of keys and values.

        Args:
            bind: Which outputs are inputs of the next run, ``{output: input}``; it holds for every signature that has
                such an output or input. ``"matching"`` binds each output that some signature has as an input of the
                same name, if all tensors of that name are of one shape and element type.

        Returns:
            A session, whose states are zeros. Others over the same kernels and weights have other states.

        Raises:
            TypeError: ``bind`` is of another type.
            ValueError: A name is unknown, shapes or element types differ, nothing matches, or the model is closed.
        """
        from tflgpu.runtime.model_session import ModelSession  # for models with states

        family = self._family
        family.check_open()
        return ModelSession(
            family.infos, self._artifact.signature, bind, partial(_open_signature, self), family.check_open
        )

    def bind(self, output: str | Bind, input: str | None = None) -> None:
        """Let an output of one run be an input of the next, in this model and in all other signatures of its file.

        From then on :meth:`run` takes no such inputs and returns no such outputs: the values stay in a state, which has
        the name of the input and begins with zeros. :meth:`reset` sets it. Other sessions are not concerned.

        Args:
            output: The name of an output; or as of :meth:`session`, for several.
            input: The name of the input that reads it. By default it has the output's name.

        Raises:
            TypeError: The arguments are of other types.
            ValueError: A name is unknown, shapes or element types differ, nothing matches, or the model is closed.
        """
        from tflgpu.runtime.bindings import chosen_pairs
        from tflgpu.runtime.model_session import ModelSession

        family = self._family
        family.check_open()
        wanted: Any = {output: output if input is None else input} if isinstance(output, str) else output
        if output == "matching" and input is None:
            wanted = output
        family.bound |= chosen_pairs(family.infos, wanted)
        weak = proxy(family)  # which has the session
        family.states = ModelSession(family.infos, family.own, family.bound, partial(_open_in, weak), weak.check_open)
        for model in family.models():
            model._states = family.states

    def reset(self, states: Mapping[str, ArrayLike] | None = None) -> None:
        """Set all states of :meth:`bind` to zeros or given values, and variables as by :meth:`reset_state`.

        Args:
            states: Values of some of the states, by name of input; the others become zeros.

        Raises:
            ValueError: There is no such state, a value does not fit, or the model is closed.
        """
        if self._states is not None:
            self._states.reset(states)
        elif states:
            raise ValueError(f"the model has no states {sorted(states)}: `bind` makes them")
        self._runner.reset_state()

    def reset_state(self) -> None:
        """Put every variable of the model back to its first value, as if the model had not run yet.

        Models keep state in resource variables and in variable tensors, such as those of an LSTM. Resource variables
        belong to the opened model: all signatures of its file share them, and another one, also a copy by pickle,
        begins anew. Variable tensors belong to this object and to one set of input shapes.
        In a signal handler, it is done when the interrupted call is over.

        Raises:
            ValueError: The model is closed.
        """
        self._runner.reset_state()

    def profile(self, inputs: Inputs, runs: int = 10) -> Profile:
        """Measure the device time of each kernel, on a queue of its own. For the model's state it is one run.

        Args:
            inputs: As of :meth:`run`.
            runs: How many inferences to take the median of.

        Returns:
            Seconds of each kernel, and of the operators on the CPU.

        Raises:
            TypeError: Inputs or the number of runs do not fit.
            ValueError: Inputs or the number of runs do not fit, or the model is closed.
            DeviceError: The device has no clock for the persistent executor.
        """
        runs = whole_number("runs", runs)
        codes = {o.index: o.code for o in self.report.operators}
        pieces, cpu_seconds = self._runner.profile(inputs, runs)
        return Profile(tuple(kernel_times(pieces, codes)), tuple(cpu_seconds))

    def close(self) -> None:
        """Release the device memory; running afterwards is an error, closing again is not.

        What was enqueued before runs to its end, as does a call that is interrupted by a signal handler that closes it.
        In a process that was forked this does nothing.
        """
        if self._own_family is not None and not is_orphan():
            for model in self._own_family.close():
                model.close()
        if not is_orphan():
            self._constants = ()
        self._runner.close()

    @property
    def _family(self) -> Family[CompiledModel]:
        """The models of the file's signatures: those that this one belongs to, or if they are gone, its own."""
        family = None if self._family_beside is None else self._family_beside()
        if family is not None:
            return family
        if self._own_family is None:
            self._own_family = self._new_family()
        return self._own_family

    def _new_family(self) -> Family[CompiledModel]:
        artifact = self._artifact
        make = partial(_compile_member, self._model, self._opening.session(), self._own_queue)
        known_as = artifact.signature, artifact.signatures
        family = Family(self, *known_as, self.options, make, self._variables)
        family.share(self._constants)
        return family

    def _by_name(self, inputs: Inputs) -> Mapping[str, Any]:
        """Return inputs by name, where some of them are states."""
        if isinstance(inputs, Mapping):
            return inputs
        assert self._states is not None
        states = self._states.states_of(self._artifact.signature)
        names = [info.name for info in self.inputs if info.name not in states]
        given: Any = inputs if isinstance(inputs, list | tuple) else [inputs]
        if len(given) != len(names):
            raise ValueError(f"{len(given)} inputs were given; the model has {len(names)} besides its states: {names}")
        return dict(zip(names, given, strict=True))

    def _instantiate_for(self, shapes: tuple[Shape, ...]) -> Instance:
        """Return the instance for inputs of these shapes. Raises ModelError if the model's file is needed and has
        changed."""
        wanted = {info.name: shape for info, shape in zip(self.inputs, shapes, strict=True)}
        is_first = shapes == tuple(info.shape for info in self.inputs)
        options = self.options if is_first else replace(self.options, shapes=Shapes(inputs=wanted))
        instance = self._instantiate(options, Stopwatch())
        _warn_of_half(instance)
        return instance

    def _instantiate(self, options: Options, clock: Stopwatch) -> Instance:
        """From the cache if it can be; else compiled, and kept there."""
        cache = serializer.open_cache(options)
        if cache is None:
            self._content_hash = content_hash(self._model.bytes)
            instance = self._checked(self._open(None, options, clock, None), None, options, clock, None)
        else:
            identity, target = self.device.identity, self._target
            key, stored = serializer.find(self._model, options, identity, target, cache, clock, self._shared)
            if stored is None and self._shared and not cache.is_writable:  # perhaps with all of its weights
                key, stored = serializer.find(self._model, options, identity, target, cache, clock)
            self._content_hash = key.fields["content"]
            if stored is None and options.cache == "require":
                raise CacheMissError(
                    f"the cache has no artifact {key.name} of this model for {self.device.name}, driver "
                    f"{self.device.driver}; `tflgpu precompile-cache` makes it"
                )
            LOGGER.info("the cache %s %s", "does not have" if stored is None else "has", key.name)
            try:
                with DeviceFailures(self.device, "loading the model"):
                    instance = self._open(stored, options, clock, cache)
            except MemoryError:
                raise
            except Exception as error:  # an entry, or a program of the cache, may be another one than its key says
                if stored is None and not isinstance(error, DeviceError):
                    raise
                self._opening.session()  # raises what is no fault of the cache
                warn_once(
                    "binary", f"the model cannot be loaded with what the cache holds: {error}; it is compiled anew"
                )
                instance = self._open(None, options, clock, None)
            if cache.is_writable and instance.keep_binaries(cache, clock):
                artifact = instance.artifact
                del instance  # and with it what it holds on the device
                with DeviceFailures(self.device, "loading the model"):
                    instance = self._open(artifact, options, clock, cache)
            instance = self._checked(instance, stored, options, clock, cache)
            if instance.artifact != stored:
                serializer.store(cache, key, instance.artifact, self._model.name)
                clock.lap("store")
        instance.release_constants()
        if not instance.artifact.has_free_axes:
            self._model.release()
        return instance

    def _checked(
        self, instance: Instance, stored: Artifact | None, options: Options, clock: Stopwatch, cache: Cache | None
    ) -> Instance:
        """Return the instance with what the check of half precision finds in its report; another one, if that is
        nearer.

        What was stored without a check is checked now, if the caller wants one.
        """
        check, self._half_check = self._half_check, None
        if self._target.storage != "half" or options.numerics.tolerance is not None:
            return instance
        half = instance.artifact.report.half
        if check is None and stored is not None and half is not None and half.unchecked == NOT_ASKED:
            check = self._new_check(options, clock, cache)
            if check is not None:
                from tflgpu.compiler import lower_file

                check.begin(lower_file(self._model.bytes, options, self._target.missing_types))
        if check is None:
            if stored is None and options.numerics.half_check == "off":
                return _with_half(instance, HalfPrecision("", unchecked=NOT_ASKED))
            return instance
        clock.lap("upload")
        half = check.verdict(instance)
        if half is not None and half.is_off and check.may_be_repaired(instance.artifact):
            instance, half = self._repaired(instance, half, check, options, clock, cache)
        if half is not None and half.is_off:
            half = check.named(instance.artifact, half)
        clock.lap("half check")
        return _with_half(instance, half)

    def _repaired(
        self,
        instance: Instance,
        half: HalfPrecision,
        check: HalfCheck,
        options: Options,
        clock: Stopwatch,
        cache: Cache | None,
    ) -> tuple[Instance, HalfPrecision]:
        """Return the model with more tensors in float, and what the check finds then; as it was, if that is no
        better."""
        from tflgpu.compiler import compile_model
        from tflgpu.measure.mixed_precision.calibrator import Calibrator

        LOGGER.info("half precision is off by %.2g: looking for tensors to keep in float", half.error)
        session, timeout = self._opened(clock), options.cpu_part.trial_timeout
        limit = LARGEST_ERROR, check.inputs, session, cache, timeout
        some = self._planned, Calibrator(*limit, scales=check.scales, seconds=REPAIR_SECONDS)
        every = replace(self._planned, storage="float"), None
        # A small model may as well be in float as a whole; a large one would be much slower than its user expects.
        may_cost = half.error > LARGE and (instance.artifact.report.kernels or 0) <= FEW_KERNELS
        for target, calibrator in (some, every) if may_cost else (some,):
            try:
                rest = clock, None, calibrator, self._shared
                artifacts = compile_model(self._model.bytes, options, target, *rest)
                repaired = open_fastest(artifacts, session, clock, cache, timeout)
                after = check.verdict(repaired)
            except (BuildError, DeviceError, UnsupportedError, ValueError, WideGroupsError) as obstacle:
                LOGGER.info("no tensors can be kept in float: %s", obstacle)
                continue
            is_right = after is not None and not after.unchecked and not after.is_off
            if after is not None and is_right and (may_cost or not _costs_much(repaired, instance)):
                in_float = repaired.artifact.report.floats is None
                return repaired, replace(after, repaired=half.error, in_float=in_float)
        return instance, half

    def _opened(self, clock: Stopwatch) -> Session:
        """Return the session, once the driver has opened it: it may take longer for that than planning takes."""
        session = self._opening.session()
        clock.lap("context")
        return session

    def _open(self, stored: Artifact | None, options: Options, clock: Stopwatch, cache: Cache | None) -> Instance:
        """Return the artifact, or the fastest of new ones; kernels whose built forms allow smaller groups are planned
        anew."""
        drafts = stored is None and cache is not None and cache.is_writable
        while True:
            try:
                rivals = self._compile(options, clock, cache) if stored is None else (stored,)
                timeout = options.cpu_part.trial_timeout
                return open_fastest(rivals, self._opened(clock), clock, cache, timeout, drafts=drafts)
            except WideGroupsError as error:
                stored, self._planned = None, self._planned.with_group_sizes(error.sizes)

    def _compile(self, options: Options, clock: Stopwatch, cache: Cache | None = None) -> tuple[Artifact, ...]:
        """Several artifacts if only measuring can tell which of them is the fastest."""
        load_compiler(self.device.handle, self._opening)
        measures = options.execution.tuning != "none" or options.numerics.tolerance is not None
        with nullcontext() if measures else _without_collections():
            return self._compile_now(options, clock, cache)

    def _compile_now(self, options: Options, clock: Stopwatch, cache: Cache | None) -> tuple[Artifact, ...]:
        # A warm start must not import the compiler, and what that imports.
        from tflgpu.compiler import compile_model

        tuner = None
        if options.execution.tuning != "none":
            from tflgpu.measure.tuner import DeviceTuner

            tuner = DeviceTuner(self._opened(clock), options.execution.tuning, cache)
        calibrator = None
        numerics, timeout = options.numerics, options.cpu_part.trial_timeout
        if numerics.tolerance is not None:
            from tflgpu.measure.mixed_precision.calibrator import Calibrator

            calibrator = Calibrator(numerics.tolerance, numerics.calibration or (), self._opened(clock), cache, timeout)
        rest = clock, tuner, calibrator, self._shared, self._half_checked(options, clock, cache)
        artifacts = compile_model(self._model.bytes, options, self._planned, *rest)
        integers = artifacts[0].report.integers
        if integers is not None and integers.products:
            from tflgpu.measure.integer_check import without_wrong_unit

            checked = without_wrong_unit(self._planned, self.device, cache, partial(self._opened, clock))
            clock.lap("measure")
            if checked != self._planned:
                self._planned = checked
                artifacts = compile_model(self._model.bytes, options, checked, *rest)
        if not artifacts[0].has_free_axes:
            self._model.release()
        return artifacts

    def _half_checked(self, options: Options, clock: Stopwatch, cache: Cache | None) -> Callable[[Any], None] | None:
        """Return what begins the check of half precision once the model is lowered; None where none is wanted."""
        if self._target.storage == "half" and self._half_check is None:
            self._half_check = self._new_check(options, clock, cache)
        return self._half_check.begin if self._half_check is not None else None

    def _new_check(self, options: Options, clock: Stopwatch, cache: Cache | None) -> HalfCheck | None:
        """Return the check of half precision, where one is wanted."""
        from tflgpu.measure.half_check import HalfCheck, is_wanted

        is_kept = cache is not None and cache.is_writable
        wanted = is_wanted(options, kept=is_kept)
        return HalfCheck(self._model.bytes, options, partial(self._opened, clock)) if wanted else None

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., CompiledModel], tuple[ModelSource, str, Options]]:
        if not self._own_queue:
            raise TypeError("a model on a queue of the caller's cannot be pickled")
        return _compile_again, (self._model.path or self._model.bytes, self._content_hash, self.options)

    def _of_file(self, read: Callable[[bytes], Found]) -> Found:
        was_read = self._model.is_read
        with self._model.naming_file():
            found = read(self._model.bytes)
        if not was_read:
            self._model.release()
        return found

    @property
    def _table(self) -> Table:
        from tflgpu.report.model_table import model_table  # a start does without

        name = self._model.name or "a model"
        title = f"{name} on {self.device.name}: {self.precision}, {self.executor}, {self.report.kernels} kernels"
        return model_table(title, self.inputs, self.outputs, (self.report.places,))

    def __str__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        return self._table.html()

    def __repr__(self) -> str:
        return f"<CompiledModel on {self.device.name}: {self.report.kernels} kernels>"


def _costs_much(repaired: Instance, instance: Instance) -> bool:
    """Whether tensors in float take so much more memory that the caller had better choose."""
    before, after = (each.artifact.report.arena_bytes or 0 for each in (instance, repaired))
    return after > DEAR * before


def _with_half(instance: Instance, half: HalfPrecision | None) -> Instance:
    """Return the instance, with this in its report."""
    instance.artifact = replace(instance.artifact, report=replace(instance.artifact.report, half=half))
    return instance


def _warn_of_half(instance: Instance) -> None:
    half = instance.artifact.report.half
    if half is not None and half.warning:
        warn_caller(half.warning, PrecisionWarning)


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


def compile_with_variables(model: ModelSource, options: Options, variables: ModelVariables) -> CompiledModel:
    """:func:`compile` for a model that was opened before, perhaps with other shapes of its inputs.

    Args:
        model: As of :func:`compile`.
        options: Those of the new one.
        variables: Of the opened model.

    Raises:
        Exception: What :func:`compile` does.
    """
    content = ModelContent(model)
    with content.naming_file(), Using():
        return CompiledModel(content, check_options(options), variables=variables)


def reset_variable_tensors(model: CompiledModel) -> None:
    """Set a model's variable tensors to their first values, as LiteRT does when it allocates; not other variables."""
    model._runner.reset_state(of_model=False)


def compile_beside(first: CompiledModel, options: Options) -> CompiledModel:
    """Another signature of a model's file, on its device and queue, with its copies of equal weights.

    Args:
        first: A model that is open.
        options: Of the new one.

    Raises:
        Exception: What :func:`compile` does.
    """
    return _compile_beside(first._model, first._opening.session(), first._own_queue, options, first._family)


def _compile_beside(
    content: ModelContent, session: Session, own_queue: bool, options: Options, family: Family[CompiledModel]
) -> CompiledModel:
    shared = replace(session, shared=tuple(buffer for _, buffer in family.constants))
    with content.naming_file(), Using():
        model = CompiledModel(content, options, given=shared, family=family)
    model._own_queue = own_queue
    return model


def _compile_member(
    content: ModelContent, session: Session, own_queue: bool, options: Options, family: Family[CompiledModel]
) -> CompiledModel:
    """Return a model that the family keeps, and whose weights later ones may share."""
    model = _compile_beside(content, session, own_queue, options, family)
    family.share(model._constants)
    return model


def _open_signature(model: CompiledModel, key: str | None, pairs: Mapping[str, str]) -> OpenSignature:
    """Return what a session runs, which keeps the model that it is of."""
    return _open_in(model._family, key, pairs)


def _open_in(family: Family[CompiledModel], key: str | None, pairs: Mapping[str, str]) -> OpenSignature:
    from tflgpu.runtime.model_session import OpenSignature

    opened = family.model(key, pairs)
    bound = tuple(form for form in opened._artifact.bound if not form.variable)
    return OpenSignature(opened._runner, opened.inputs, bound)


def _compile_again(model: ModelSource, expected: str, options: Options) -> CompiledModel:
    """Return the model of a pickle, which has a file's path and content hash, or the bytes. Raises ModelError,
    OSError."""
    content = ModelContent(model)
    serializer.check_unchanged(content, expected)
    with Using():
        return CompiledModel(content, options)
