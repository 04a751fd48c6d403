"""Inputs and outputs of a language model's signatures: tokens, positions, masks, caches and scores, by their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from tflgpu.errors import ModelError
from tflgpu.model.tensor_info import SignatureInfo

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
