"""Which outputs of a file's signatures are inputs of later runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tflgpu.model.tensor_info import SignatureInfo, TensorInfo

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
