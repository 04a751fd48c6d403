"""Steps of a language model on its device: its signatures by the names of their tensors, and runs with one cache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tflgpu.errors import CacheMissError, ModelError, UnsupportedError
from tflgpu.language.sampler_model import CHOSEN, DRAW, NEXT, TOTAL, sampler_model
from tflgpu.language.sampler_model import SCORES as GIVEN_SCORES
from tflgpu.language.sampling import Sampling, check_scores
from tflgpu.model.tensor_info import SignatureInfo, TensorInfo

# The names that converters give to inputs and outputs.
TOKENS, POSITIONS, MASKS, SCORES = ("tokens", "token_ids"), ("input_pos", "positions"), ("mask", "attn_mask"), "logits"

DECODE, PREFILL = "decode", "prefill"


@dataclass(frozen=True)
class Step:
    """A signature that takes ``size`` tokens at once, and the names of its inputs.

    mask: an input that says which places of the cache each token sees, of the type ``mask_dtype``; None if the model
    knows it. caches: inputs that are outputs of the same name, too.
    """

    signature: str
    size: int
    tokens: str
    positions: str
    mask: str | None
    mask_dtype: str
    caches: tuple[str, ...]


@dataclass(frozen=True)
class LanguageSteps:
    """The signatures of a language model.

    decode: takes one token and gives scores. prefills: take many tokens, the smallest first. cache_size: places of the
    cache. vocabulary: number of tokens that the model knows. has_places: whether each cache has a row for each place.
    """

    decode: Step
    prefills: tuple[Step, ...]
    cache_size: int
    vocabulary: int
    has_places: bool


def language_steps(signatures: Iterable[SignatureInfo]) -> LanguageSteps:
    """Return the steps of a language model: its signatures for prompts and for single tokens.

    Args:
        signatures: Those of the file.

    Raises:
        ModelError: They are not those of a language model.
    """
    known = {signature.key: signature for signature in signatures if signature.key is not None}
    if DECODE not in known:
        listed = ", ".join(map(repr, known)) or "none"
        raise ModelError(
            f"this is no language model: it lacks the signature {DECODE!r}; it has: {listed}; `tflgpu run` runs it"
        )
    decode = _step(DECODE, known[DECODE])
    if decode.size != 1:
        raise ModelError(f"the signature {DECODE!r} takes {decode.size} tokens; one was expected")
    scores = next((info for info in known[DECODE].outputs if info.name == SCORES), None)
    if scores is None:
        raise ModelError(f"the signature {DECODE!r} has no output {SCORES!r}")
    if not decode.caches:
        raise ModelError(f"the signature {DECODE!r} has no cache: no input has the name of an output")
    prefills = [
        _step(key, signature)
        for key, signature in known.items()
        if (key == PREFILL or key.removeprefix(f"{PREFILL}_").isdecimal()) and key != DECODE
    ]
    for step in prefills:
        if set(step.caches) != set(decode.caches):
            raise ModelError(f"the signatures {step.signature!r} and {DECODE!r} have different caches")
    shapes = [info.shape for info in known[DECODE].inputs if info.name in decode.caches]
    # Caches are [batch, places, heads, size] or [batch, heads, places, size], with more places than heads.
    cache_size = max(shapes[0][1:3], default=0)
    has_places = all(cache_size in shape[1:3] or cache_size in shape[-2:] for shape in shapes)
    sizes = tuple(sorted(prefills, key=lambda step: step.size))
    return LanguageSteps(decode, sizes, cache_size, scores.shape[-1], has_places)


def _step(key: str, signature: SignatureInfo) -> Step:
    inputs = {info.name: info for info in signature.inputs}
    caches = tuple(sorted(inputs.keys() & {info.name for info in signature.outputs}))
    rest = {name for name in inputs if name not in caches}
    tokens, positions, mask = (next((n for n in names if n in rest), None) for names in (TOKENS, POSITIONS, MASKS))
    strange = rest - {tokens, positions, mask}
    if tokens is None or positions is None or strange:
        names = ", ".join(sorted(rest)) or "none"
        raise ModelError(
            f"the signature {key!r} has the inputs {names} beside its cache; tokens and positions were expected"
        )
    dtype = "bool" if mask is None else inputs[mask].dtype
    return Step(key, prod(inputs[tokens].shape), tokens, positions, mask, dtype, caches)


class DeviceChain:
    """Steps of a model whose tokens the device chooses, each of which is the input of the next step.

    Scores and token stay on the device between the model and the sampler, which are on one queue."""

    def __init__(
        self, session: tflgpu.ModelSession, sampler: tflgpu.CompiledModel, model: tflgpu.CompiledModel, token: str
    ) -> None:
        """token: the input of the model that is the token."""
        self._session, self._sampler, self._token = session, sampler, token
        self._draws = any(info.name == DRAW for info in sampler.inputs)
        self._scores, self._next = sampler.device_buffer(GIVEN_SCORES), model.device_buffer(token)

    def enqueue(self, inputs: Mapping[str, NDArray[Any]], draw: float) -> ChosenToken:
        """Start a step. It reads the token of the last step, unless the token is among the inputs.

        Args:
            inputs: Arrays by name, without the cache.
            draw: A random number in [0, 1), by which the token is chosen.
        """
        self._session.enqueue(DECODE, {self._token: self._next, **inputs}, {SCORES: self._scores})
        given: dict[str, Any] = {GIVEN_SCORES: self._scores}
        if self._draws:
            given[DRAW] = np.full((1, 1), draw, np.float32)
        return ChosenToken(self._sampler.enqueue(given, {NEXT: self._next}))


class ChosenToken:
    """A token that is known later."""

    def __init__(self, submission: tflgpu.Submission) -> None:
        self._submission = submission

    def wait(self) -> int:
        """Return the token. Raises DeviceError if the device fails, or the scores are no numbers."""
        outputs = self._submission.wait()
        check_scores(float(outputs[TOTAL][0]))
        return int(outputs[CHOSEN][0])


Arrays = dict[str, NDArray[Any]]


class CachedRuns:
    """Runs of signatures, each with the cache as the run before left it: the state of a session, on the device."""

    def __init__(
        self,
        session: tflgpu.ModelSession,
        empty: Mapping[str, NDArray[Any]] | None,
        chain: Callable[[tflgpu.ModelSession, Sampling], DeviceChain | None],
    ) -> None:
        """empty: values of an empty cache by name; None for zeros. chain: makes what runs ahead on a session."""
        self._session, self._empty, self._chain = session, empty, chain
        self.reset()

    def open(self, signature: str) -> None:
        """Compile a signature, unless that is done.

        Args:
            signature: Its name in the file.
        """
        self._session.prepare(signature)

    def run(self, signature: str, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run a signature, and return its outputs without the cache.

        Args:
            signature: Its name in the file.
            inputs: Arrays by name, without the cache.
        """
        return self._session.run(signature, inputs)

    def chain(self, sampling: Sampling) -> DeviceChain | None:
        """Return a chain that chooses tokens on the device and steps ahead of the caller.

        Args:
            sampling: How tokens are chosen.

        Returns:
            None where the model or the way of choosing does not allow it.
        """
        return self._chain(self._session, sampling)

    def reset(self) -> None:
        """Empty the cache."""
        self._session.reset(self._empty)

    def values(self) -> Arrays:
        """Return a copy of the cache, by name."""
        return {name: self._session.state(name) for name in self._session.states}

    def set(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Fill the cache with values that :meth:`values` returned.

        Args:
            values: Arrays by the names of the cache's tensors.
        """
        self._session.reset(values)

    def close(self) -> None:
        """Release the memory of the cache."""
        self._session.close()


class CompiledSteps:
    """The signatures of a language model, compiled. Any number of caches share them, each with runs of its own.

    Signatures are compiled with their cache at once: without it, none of them is ever run.
    """

    def __init__(
        self,
        model: bytes,
        options: tflgpu.Options,
        steps: LanguageSteps,
        signatures: Sequence[SignatureInfo],
        ahead: bool | None = None,
        cache_value: int = 0,
    ) -> None:
        """Compile ``decode``.

        ahead: whether there are chains, where the model allows it; by default not on CPUs. cache_value: what an empty
        cache is filled with.
        """
        caches = {name: name for name in steps.decode.caches}
        interface = replace(options.interface, signature=DECODE)
        decode = next(signature for signature in signatures if signature.key == DECODE)
        inputs = decode.inputs
        self._empty = _empty([info for info in inputs if info.name in caches], cache_value)
        on_device = {i.name for i in inputs if i.name in caches and not i.free_axes and i.quantization is None}
        # A model of one signature has no other one that tells a session of caches which are bound.
        at_once = on_device if len(signatures) > 1 else set()
        bound = replace(interface, bound={name: name for name in caches if name in at_once} or None)
        try:
            self._model = tflgpu.compile(model, replace(options, interface=bound))
            is_whole = at_once == caches.keys()
        except (UnsupportedError, CacheMissError):  # a part of it runs on the CPU, or the cache has it without states
            self._model = tflgpu.compile(model, replace(options, interface=interface))
            is_whole = False
        self._caches, self._options, self._steps, self._decode = caches, options, steps, decode
        self._runs_ahead = (
            is_whole and steps.has_places and (self._model.device.type != "cpu" if ahead is None else ahead)
        )
        self._samplers: dict[object, tflgpu.CompiledModel | None] = {}
        self._lock = threading.Lock()  # of the samplers

    def runs(self) -> CachedRuns:
        """Return runs on a cache of their own, which is empty."""
        return CachedRuns(self._model.session(self._caches), self._empty, self.chain)

    def chain(self, session: tflgpu.ModelSession, sampling: Sampling) -> DeviceChain | None:
        """Return a chain that starts the signature ``decode`` before the host knows the token that it reads.

        A step that runs in vain writes rows of the cache that the next one at its place writes anew. So each cache has
        a row for each place, and the device runs the whole step.

        Args:
            session: Has the cache.
            sampling: How tokens are chosen.

        Returns:
            None where the model or the way of choosing does not allow it.
        """
        scores = next(info for info in self._decode.outputs if info.name == SCORES)
        token = next(info for info in self._decode.inputs if info.name == self._steps.decode.tokens)
        if not self._runs_ahead or not (_is_plain(scores, "float32") and _is_plain(token, "int32")):
            return None
        if sampling.has_penalties or (sampling.top_k is None and (sampling.top_p, sampling.min_p) != (None, None)):
            return None
        bias = tuple(sorted(sampling.bias.items()))
        kind = sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, bias
        with self._lock:
            if kind not in self._samplers:
                self._samplers[kind] = self._sampler(sampling, scores, token)
            sampler = self._samplers[kind]
        return None if sampler is None else DeviceChain(session, sampler, self._model, token.name)

    def _sampler(self, sampling: Sampling, scores: TensorInfo, token: TensorInfo) -> tflgpu.CompiledModel | None:
        """On the queue of the model; None if the device cannot run it, or nothing may be compiled."""
        options = tflgpu.Options(
            precision="fp32",
            fallback="forbid",
            cache=self._options.cache,
            cache_files=replace(self._options.cache_files, model_token=None),
            execution=tflgpu.Execution(kernels=self._options.execution.kernels),
        )
        try:
            return tflgpu.compile(sampler_model(sampling, scores.shape, token.shape), options, queue=self._model.queue)
        except (UnsupportedError, CacheMissError):
            return None

    def close(self) -> None:
        """Release the device's memory."""
        with self._lock:
            for sampler in self._samplers.values():
                if sampler is not None:
                    sampler.close()
        self._model.close()


def _empty(caches: Sequence[TensorInfo], value: int) -> dict[str, NDArray[Any]] | None:
    """Return caches filled with a value, by name; None for zeros, with which a session begins anyway.

    Raises ModelError if the element type of a cache does not have the value.
    """
    if value == 0:
        return None
    for info in caches:
        kind = np.dtype(info.dtype)
        if kind.kind in "iu" and not np.iinfo(kind).min <= value <= np.iinfo(kind).max:
            raise ModelError(f"the file fills its caches with {value}, and {info.name!r} has elements of {info.dtype}")
    return {info.name: np.full(info.shape, value, info.dtype) for info in caches}


def _is_plain(info: TensorInfo, dtype: str) -> bool:
    """Whether it is one row of numbers of this type, of a known shape."""
    is_row = prod(info.shape) == info.shape[-1] if info.shape else False
    return is_row and info.dtype == dtype and info.quantization is None and not info.free_axes
