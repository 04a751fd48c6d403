"""``tflgpu.compile`` and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakMethod, proxy, ref

from numpy.typing import ArrayLike, NDArray

from tflgpu.artifact import serializer
from tflgpu.artifact.artifact import Artifact, CpuPartition
from tflgpu.checking.option_fields import whole_number
from tflgpu.errors import DeviceWarning, FallbackWarning, PrecisionWarning, warn_caller
from tflgpu.graph.layout import Shape
from tflgpu.model.model_source import ModelContent, ModelSource
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.opening import Opener
from tflgpu.options import Options, Shapes, check_options
from tflgpu.report.profile import Profile, Stopwatch
from tflgpu.report.report import Report
from tflgpu.runtime.device_memory import Buffer, Queue
from tflgpu.runtime.input_check import Given, Inputs, Outputs
from tflgpu.runtime.instance import Instance, kernel_times
from tflgpu.runtime.model_variables import ModelVariables
from tflgpu.runtime.opencl.process import Using, is_orphan
from tflgpu.runtime.opencl.session import Session, session_on
from tflgpu.runtime.runner import RowSizes, Runner
from tflgpu.runtime.signatures import Family, Signatures
from tflgpu.runtime.submission import Submission

if TYPE_CHECKING:
    from tflgpu.model.declared_metadata import ModelMetadata
    from tflgpu.opening.early_start import Compilation
    from tflgpu.report.table import Table
    from tflgpu.runtime.model_session import Bind, ModelSession, OpenSignature

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
        shared = () if family is None else tuple(shared for shared, _ in family.constants)
        self._opener = Opener(model, options, clock, given if queue is None else session_on(queue), shared)
        self.device = self._opener.device
        starts_now = options.execution.start == "now"
        known = self._opener.known(options, clock) if starts_now else None
        early = self._open_early(clock) if starts_now and known is None else None
        instance = known or early or self._opener.open(options, clock)
        self.seconds: Mapping[str, float] = clock.laps
        self._artifact: Artifact = instance.artifact
        self._constants = tuple(instance.constants())
        self._variables = variables or (ModelVariables() if family is None else family.variables)
        rows = RowSizes(self._known_for_shapes, self._have_same_rows, sum(self.seconds.values()))
        runs = self._open_for_shapes, self._variables, rows
        self._runner = Runner(self.inputs, self._opener.session, instance, *runs)
        self._states: ModelSession | None = None if family is None else family.states
        self._family_beside = None if family is None else ref(family)
        self._own_family = self._new_family() if family is None else None
        self._compilation: Compilation | None = None
        if early is not None:
            self._compile_later()
            return
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
        return self._opener.target.precision if self.report.mixed is None else "mixed"

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
        from tflgpu.model.metadata import labels_in_file  # a start does without

        return tuple(self._of_file(labels_in_file))

    @cached_property
    def metadata(self) -> ModelMetadata:
        """The file's metadata of its inputs and outputs: normalizations, and names of packed files of labels.

        Empty without metadata. Reads the file again, and raises what :attr:`labels` does.
        """
        from tflgpu.model.metadata import read_metadata  # a start does without

        return self._of_file(read_metadata)

    @property
    def queue(self) -> Queue:
        """The in-order queue on which the model runs; arrays on the device have to belong to its context."""
        return self._opener.session.queue

    @property
    def is_ready(self) -> bool:
        """True once compiled kernels run the model; with ``Execution(start="now")`` LiteRT runs it until then."""
        return self._compilation is None or self._compilation.has_succeeded

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until compiled kernels run the model.

        Args:
            timeout: Seconds; None for no limit.

        Returns:
            Whether they do.

        Raises:
            Exception: What :func:`compile` raises of a model that cannot be compiled. LiteRT goes on running it.
        """
        return self._compilation is None or self._compilation.wait(timeout)

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
        from tflgpu.runtime.model_session import ModelSession, chosen_pairs

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

    def _open_early(self, clock: Stopwatch) -> Instance | None:
        """Return an instance that LiteRT runs; None if the model has to start compiled."""
        from tflgpu.opening.early_start import open_early  # other starts do without

        return open_early(self._opener, self.options, clock)

    def _compile_later(self) -> None:
        """Let a thread compile the model, which does not keep this object alive."""
        from tflgpu.opening.early_start import Compilation

        self._compilation = Compilation(self._opener, self._model, self.options, WeakMethod(self._take))

    def _take(self, instance: Instance, clock: Stopwatch) -> None:
        """Run a compiled instance from the next call on."""
        if self._runner.replace(instance, sum(clock.laps.values())):
            self._artifact, self.seconds = instance.artifact, clock.laps
            self._constants = tuple(instance.constants())
            self._family.share(self._constants)
            _warn_of_half(instance)

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
        make = partial(_compile_member, self._model, self._opener.session, self._own_queue)
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

    def _open_for_shapes(self, shapes: tuple[Shape, ...]) -> Instance:
        """Return the instance for inputs of these shapes. Raises ModelError if the model's file is needed and has
        changed."""
        instance = self._opener.open(self._options_for(shapes), Stopwatch())
        _warn_of_half(instance)
        return instance

    def _known_for_shapes(self, shapes: tuple[Shape, ...]) -> Instance | None:
        return self._opener.known(self._options_for(shapes))

    def _have_same_rows(self, one: tuple[Shape, ...], other: tuple[Shape, ...]) -> bool:
        return self._opener.have_same_rows(self._options_for(one), self._options_for(other))

    def _options_for(self, shapes: tuple[Shape, ...]) -> Options:
        wanted = {info.name: shape for info, shape in zip(self.inputs, shapes, strict=True)}
        is_first = shapes == tuple(info.shape for info in self.inputs)
        return self.options if is_first else replace(self.options, shapes=Shapes(inputs=wanted))

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., CompiledModel], tuple[ModelSource, str, Options]]:
        if not self._own_queue:
            raise TypeError("a model on a queue of the caller's cannot be pickled")
        return _compile_again, (self._model.path or self._model.bytes, self._opener.content_hash, self.options)

    def _of_file(self, read: Callable[[bytes], Found]) -> Found:
        was_read = self._model.is_read
        with self._model.naming_file():
            found = read(self._model.bytes)
        if not was_read:
            self._model.release()
        return found

    @property
    def _table(self) -> Table:
        from tflgpu.report.table import model_table  # a start does without

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


def _warn_of_half(instance: Instance) -> None:
    half = instance.artifact.report.half
    if half is not None and half.warning:
        warn_caller(half.warning, PrecisionWarning)


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
    """Set a model's variable tensors to their first values, as LiteRT does when it allocates; not other variables.

    Args:
        model: An opened model. Its resource variables keep their values.
    """
    model._runner.reset_state(of_model=False)


def compile_beside(first: CompiledModel, options: Options) -> CompiledModel:
    """Another signature of a model's file, on its device and queue, with its copies of equal weights.

    Args:
        first: A model that is open.
        options: Of the new one.

    Raises:
        Exception: What :func:`compile` does.
    """
    return _compile_beside(first._model, first._opener.session, first._own_queue, options, first._family)


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
