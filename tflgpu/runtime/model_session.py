"""Result of :meth:`tflgpu.CompiledModel.session`: runs of a file's signatures over states of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

from numpy.typing import ArrayLike

from tflgpu.artifact.artifact import BoundState
from tflgpu.artifact.executable import Array
from tflgpu.model.tensor_info import SignatureInfo, TensorInfo
from tflgpu.runtime.executors.buffers import HeldState
from tflgpu.runtime.input_check import Given, Outputs
from tflgpu.runtime.model_variables import StateValue
from tflgpu.runtime.runner import Runner
from tflgpu.runtime.submission import Submission

Bind = Literal["matching"] | Mapping[str, str]


@dataclass(frozen=True)
class SignatureBinding:
    """Binding of one signature to the states of a session.

    Attributes:
        reads: Its inputs that are states.
        writes: The state that each of its bound outputs is written to.
        pairs: Those of ``writes`` that may be on the device: it reads the state, too, whose shape is known and whose
            elements are not quantized.
    """

    reads: frozenset[str]
    writes: Mapping[str, str]

    pairs: Mapping[str, str]


def chosen_pairs(signatures: Sequence[SignatureInfo], bind: Bind) -> dict[str, str]:
    """Return the input that each bound output is bound to.

    Args:
        signatures: Those of the file.
        bind: An input's name for each bound output; ``"matching"`` for each output that some signature has as an input
            of the same name, with one shape and element type wherever the name occurs.

    Raises:
        TypeError: It is neither.
        ValueError: A name is unknown, shapes or element types differ, or nothing matches.
    """
    if isinstance(bind, str):
        if bind != "matching":
            raise ValueError(f"bind is {bind!r}; 'matching' or a mapping from outputs to inputs was expected")
        chosen = _matching(signatures)
    elif isinstance(bind, Mapping):
        chosen = dict(bind)
        _check_names(signatures, chosen)
    else:
        raise TypeError(f"bind is of type {type(bind).__name__}; 'matching' or a mapping was expected")
    if not chosen:
        raise ValueError("no output of the model has the name, shape and element type of an input")
    return chosen


def bindings_of(signatures: Sequence[SignatureInfo], chosen: Mapping[str, str]) -> dict[str | None, SignatureBinding]:
    """Return the states of each signature; a state has the name of its input.

    Args:
        signatures: All signatures of the file.
        chosen: The state of each output, from :func:`chosen_pairs`.

    Raises:
        ValueError: Two outputs of a signature are bound to the same input.
    """
    states = frozenset(chosen.values())
    found = {}
    for signature in signatures:
        inputs, outputs = ({info.name for info in side} for side in (signature.inputs, signature.outputs))
        writes = {output: state for output, state in chosen.items() if output in outputs}
        if len(set(writes.values())) < len(writes):
            raise ValueError(f"two outputs of signature {signature.key!r} are bound to the same input: {writes}")
        plain = {i.name for i in signature.inputs if not i.free_axes and i.quantization is None}
        pairs = {output: state for output, state in writes.items() if state in plain}
        found[signature.key] = SignatureBinding(states & inputs, writes, pairs)
    return found


def _matching(signatures: Sequence[SignatureInfo]) -> dict[str, str]:
    """Return the names of outputs that are inputs as well, each with itself."""
    infos: dict[str, list[TensorInfo]] = {}
    for info in _all(signatures):
        infos.setdefault(info.name, []).append(info)
    both = {i.name for s in signatures for i in s.inputs} & {o.name for s in signatures for o in s.outputs}
    return {name: name for name in infos if name in both and len(set(map(_form, infos[name]))) == 1}


def _check_names(signatures: Sequence[SignatureInfo], chosen: Mapping[str, str]) -> None:
    """Raise ValueError for unknown names, and for outputs that are not like the inputs they are bound to."""
    inputs = {info.name: info for s in signatures for info in s.inputs}
    outputs = {info.name: info for s in signatures for info in s.outputs}
    for output, state in chosen.items():
        for name, known, side in ((output, outputs, "output"), (state, inputs, "input")):
            if name not in known:
                raise ValueError(f"the model has no {side} {name!r}; it has {sorted(known)}")
        forms = {_form(i) for s in signatures for i in s.inputs if i.name == state}
        forms |= {_form(o) for s in signatures for o in s.outputs if o.name == output}
        if len(forms) > 1:
            described = " and ".join(sorted(f"{form.dtype}{list(form.shape)}" for form in forms))
            raise ValueError(f"output {output!r} cannot be bound to input {state!r}: they are {described}")


def _form(info: TensorInfo) -> TensorInfo:
    """Return what has to be equal of an output and the input that it is bound to."""
    return TensorInfo("", info.shape, info.dtype, info.quantization)


def _all(signatures: Iterable[SignatureInfo]) -> Iterable[TensorInfo]:
    return (info for s in signatures for info in (*s.inputs, *s.outputs))


class OpenSignature(NamedTuple):
    """A compiled signature, as a session runs it.

    inputs: in order, with the shapes that it was compiled for. bound: what are states on the device.
    """

    runner: Runner
    inputs: tuple[TensorInfo, ...]
    bound: tuple[BoundState, ...]


class ModelSession:
    """Runs of a model's signatures over states of their own, such as a cache of keys and values.

    A state is an output of one run that a later run has as an input. It has the name of that input, begins with zeros,
    and is neither given nor returned. Sessions share kernels and weights. Made by
    :meth:`tflgpu.CompiledModel.session`; a context manager. One call at a time: sessions of one model may be used by
    threads of their own, a single session may not.
    """

    def __init__(
        self,
        signatures: Sequence[SignatureInfo],
        own: str | None,
        bind: Bind,
        open_signature: Callable[[str | None, Mapping[str, str]], OpenSignature],
        check_open: Callable[[], None],
    ) -> None:
        """own: the signature that a call without one runs. check_open: raises ValueError if the model is closed."""
        self._own, self._open_signature, self._check_open = own, open_signature, check_open
        self._bindings = bindings_of(signatures, chosen_pairs(signatures, bind))
        states = {state for b in self._bindings.values() for state in (*b.reads, *b.writes.values())}
        infos = {info.name: info for s in signatures for info in s.inputs if info.name in states}
        self._states = {name: StateValue(info) for name, info in infos.items()}
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states."""
        return tuple(self._states)

    def states_of(self, signature: str | None) -> frozenset[str]:
        """Return the inputs of a signature that are states.

        Args:
            signature: As of :meth:`run`.
        """
        return self._bindings[signature].reads

    def prepare(self, signature: str | None) -> None:
        """Compile a signature with the session's states, so that its first run does not wait for that.

        Args:
            signature: As of :meth:`run`.

        Raises:
            ValueError: There is no such signature, or the model or session is closed.
            UnsupportedError: An operator cannot run on the device.
            BuildError: The device's compiler fails.
            RuntimeError: Another call of the session is under way.
        """
        with self._turn():
            key, binding = self._binding(signature)
            self._open_signature(key, binding.pairs)

    def run(
        self, signature: str | None, inputs: Mapping[str, Given], outputs: Outputs | None = None
    ) -> dict[str, Array]:
        """Run a signature once on the session's states, and wait for it.

        Args:
            signature: Its key; None for the one that the model was compiled for.
            inputs: As of :meth:`tflgpu.CompiledModel.run`, without those that are states.
            outputs: As of :meth:`tflgpu.CompiledModel.run`, without those that are bound.

        Returns:
            Every output by name, but those that are bound, and those in ``outputs``.

        Raises:
            TypeError: Inputs or outputs do not fit.
            ValueError: Inputs or outputs do not fit, there is no such signature, or the model or session is closed.
            RuntimeError: Another call of the session is under way.
            DeviceError: The device fails. Then the states are undefined until :meth:`reset`.
        """
        with self._turn():
            opened, binding, given, held = self._prepared(signature, inputs, outputs)
            results = opened.runner.run(given, outputs, held)
            on_host = binding.writes.keys() - {form.output for form in opened.bound}
            self._take({output: results.pop(output) for output in on_host}, binding)
            return results

    def enqueue(self, signature: str | None, inputs: Mapping[str, Given], outputs: Outputs | None = None) -> Submission:
        """Start to run a signature once on the session's states, and return.

        Runs follow each other in the order of the calls: the next one may be enqueued before this one is over. Where a
        part of the model runs on the CPU, this waits for the run.

        Args:
            signature: As of :meth:`run`.
            inputs: As of :meth:`run`.
            outputs: As of :meth:`run`. Arrays on the device stay there, for a later run to read.

        Returns:
            A submission. Its ``wait`` has the outputs, and raises the errors of the device.

        Raises:
            TypeError: Inputs or outputs do not fit.
            ValueError: Inputs or outputs do not fit, there is no such signature, or the model or session is closed.
            RuntimeError: Another call of the session is under way.
            DeviceError: The device fails. Then the states are undefined until :meth:`reset`.
        """
        with self._turn():
            opened, binding, given, held = self._prepared(signature, inputs, outputs)
            submission = opened.runner.enqueue(given, outputs, held)
            if on_host := binding.writes.keys() - {form.output for form in opened.bound}:
                self._take(submission.take(on_host), binding)
            return submission

    def _prepared(
        self, signature: str | None, inputs: Mapping[str, Given], outputs: Outputs | None
    ) -> tuple[OpenSignature, SignatureBinding, dict[str, Given], list[HeldState]]:
        """Return what a run needs: its signature, all inputs, and the states on the device."""
        key, binding = self._binding(signature)
        _check_unbound("input", inputs, binding.reads)
        _check_unbound("output", outputs or {}, binding.writes)
        opened = self._open_signature(key, binding.pairs)
        held = [self._states[form.input.name].on_device(form, opened.runner.session) for form in opened.bound]
        given = dict(inputs)
        for info in opened.inputs:
            if info.name in binding.reads:
                given[info.name] = self._states[info.name].on_host(info.shape)
        return opened, binding, given, held

    def _binding(self, signature: str | None) -> tuple[str | None, SignatureBinding]:
        """Return a signature's key, and what it has of the states. Raises ValueError if there is none of that name."""
        key = self._own if signature is None else signature
        if key not in self._bindings:
            known = ", ".join(repr(known) for known in self._bindings)
            raise ValueError(f"the model has no signature {key!r}; it has: {known}")
        return key, self._bindings[key]

    def _take(self, arrays: Mapping[str, Array], binding: SignatureBinding) -> None:
        """Let states have the values of bound outputs that came to the host."""
        for output, array in arrays.items():
            self._states[binding.writes[output]].take(array)

    def state(self, name: str) -> Array:
        """Return the value of a state, after all runs that were enqueued, as a new array.

        Args:
            name: Of the input that reads it.

        Raises:
            ValueError: There is no such state, or the model or session is closed.
            RuntimeError: Another call of the session is under way.
        """
        with self._turn():
            self._check_states([name])
            return self._states[name].array()

    def reset(self, states: Mapping[str, ArrayLike] | None = None) -> None:
        """Set all states to zeros, or to given values.

        Args:
            states: Values of some of the states by name, which are copied; the others become zeros.

        Raises:
            ValueError: A name is unknown, a value does not fit, or the model or session is closed. Nothing is changed.
            RuntimeError: Another call of the session is under way.
        """
        with self._turn():
            given = states or {}
            self._check_states(given)
            values = {name: state.checked(given[name]) for name, state in self._states.items() if name in given}
            for name, state in self._states.items():
                state.reset(values.get(name))

    def close(self) -> None:
        """Release the memory of the states; using the session afterwards is an error, closing again is not."""
        self._is_closed = True
        self._states = {}

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Raise ValueError if the model or session is closed, RuntimeError while another call is under way."""
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("another call of this session is under way; each thread needs a session of its own")
        try:
            if self._is_closed:
                raise ValueError("this session is closed")
            self._check_open()
            yield
        finally:
            self._lock.release()

    def _check_states(self, names: Sequence[str] | Mapping[str, ArrayLike]) -> None:
        for name in names:
            if name not in self._states:
                raise ValueError(f"the session has no state {name!r}; it has {list(self._states)}")

    def __enter__(self) -> ModelSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ModelSession of {len(self._states)} states>"


def _check_unbound(side: str, given: Mapping[str, object], bound: Mapping[str, str] | frozenset[str]) -> None:
    """Raise TypeError for anything but a dictionary, ValueError for what is a state."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{side}s is of type {type(given).__name__}; a dictionary of arrays by name was expected")
    for name in given:
        if name in bound:
            raise ValueError(f"{side} {name!r} is a state of the session: `reset` sets states, `state` reads them")
