"""What a language model's signatures take and give: tokens, positions, masks, caches and scores, by their names."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.errors import ModelError
from tflgpu.model.model import FileTensor, Model, Signature

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
    cache. vocabulary: number of tokens that the model knows.
    """

    decode: Step
    prefills: tuple[Step, ...]
    cache_size: int
    vocabulary: int


def language_steps(model: Model) -> LanguageSteps:
    """The signatures of a model. Raises ModelError for a model that is no language model."""
    known = {signature.key: signature for signature in model.signatures}
    if DECODE not in known:
        listed = ", ".join(map(repr, known)) or "none"
        raise ModelError(f"a language model has the signature {DECODE!r}; this model has: {listed}")
    decode = _step(model, known[DECODE])
    if decode.size != 1:
        raise ModelError(f"the signature {DECODE!r} takes {decode.size} tokens; one was expected")
    if SCORES not in known[DECODE].outputs:
        raise ModelError(f"the signature {DECODE!r} has no output {SCORES!r}")
    if not decode.caches:
        raise ModelError(f"the signature {DECODE!r} has no cache: no input has the name of an output")
    prefills = [
        _step(model, signature)
        for key, signature in known.items()
        if (key == PREFILL or key.removeprefix(f"{PREFILL}_").isdecimal()) and key != DECODE
    ]
    for step in prefills:
        if set(step.caches) != set(decode.caches):
            raise ModelError(f"the signatures {step.signature!r} and {DECODE!r} have different caches")
    cache = _tensor(model, known[DECODE], decode.caches[0])
    scores = model.subgraphs[known[DECODE].subgraph].tensors[known[DECODE].outputs[SCORES]]
    # Caches are [batch, places, heads, size] or [batch, heads, places, size], with more places than heads.
    cache_size = max(cache.shape[1:3], default=0)
    return LanguageSteps(decode, tuple(sorted(prefills, key=lambda step: step.size)), cache_size, scores.shape[-1])


def _step(model: Model, signature: Signature) -> Step:
    caches = tuple(sorted(signature.inputs.keys() & signature.outputs.keys()))
    rest = {name for name in signature.inputs if name not in caches}
    tokens, positions, mask = (next((n for n in names if n in rest), None) for names in (TOKENS, POSITIONS, MASKS))
    strange = rest - {tokens, positions, mask}
    if tokens is None or positions is None or strange:
        names = ", ".join(sorted(rest)) or "none"
        raise ModelError(
            f"the signature {signature.key!r} has the inputs {names} beside its cache; tokens "
            "and positions were expected"
        )
    dtype = "bool" if mask is None else _tensor(model, signature, mask).dtype
    size = _tensor(model, signature, tokens).size
    return Step(signature.key, size, tokens, positions, mask, dtype, caches)


def _tensor(model: Model, signature: Signature, name: str) -> FileTensor:
    return model.subgraphs[signature.subgraph].tensors[signature.inputs[name]]
