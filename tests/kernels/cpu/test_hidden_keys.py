"""Keys that a mask hides are left out of attention on CPUs only where that changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.ops.case import Net
from tests.quick import on_first_runtime
from tests.support.limited_devices import Simulation, limited
from tests.support.row_cases import Heads, attention

LOWEST = float(np.finfo(np.float32).min)
HIDING = (-np.inf, LOWEST, 0.7 * LOWEST, -1e9)
KINDS = ("causal", "last", "first", "holes", "one", "all", "none")

# Several blocks of keys, rows of several blocks and not; the last keys are no whole vec4.
HEADS = (Heads((2,), 37, 700, 64, 64, (37, 700)), Heads((2,), 17, 611, 12, 20, (2, 1, 611)))


def hidden_keys(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which keys a row does not see."""
    keys = np.arange(shape[-1])
    hidden = {
        "causal": keys > 5 * np.arange(shape[-2])[:, None] + 3,
        "last": keys >= 130,
        "first": keys < 600,
        "holes": np.repeat(rng.random((*shape[:-1], shape[-1] // 50 + 1)) < 0.7, 50, -1)[..., : shape[-1]],
        "one": keys != 333,
        "all": np.arange(shape[-2])[:, None] % 5 == 0,
        "none": np.zeros(shape, bool),
    }[kind]
    return np.broadcast_to(hidden, shape).copy()


def drawn(heads: Heads, kind: str, hiding: float) -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
    """Queries, keys and values, and a mask."""
    rng = np.random.default_rng(len(kind))
    hidden = hidden_keys(rng, kind, heads.mask)
    if np.isinf(hiding):  # a row that sees nothing would be NaN
        hidden[..., 0] &= ~hidden.all(-1)
    mask = np.where(hidden, np.float32(hiding), rng.normal(0, 2, heads.mask).astype(np.float32))
    return [rng.normal(0, 1, shape).astype(np.float32) for shape in heads.shapes], mask


def results(
    heads: Heads, operands: list[NDArray[np.float32]], mask: NDArray[np.float32], device_name: str, precision: str
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """The results of the kernel, and in double those of the sums that LiteRT adds up in float."""
    net = Net(seed=1)
    with np.errstate(all="ignore"):
        net.output(attention(net, heads, *(net.input(x) for x in operands), mask))
        case = net.case()
        q, k, v = (x.astype(np.float64) for x in operands)
        scores = ((q @ np.swapaxes(k, 1, 2)).astype(np.float32) + mask).astype(np.float64)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ v
    execution = tflgpu.Execution(kernels="cpu")
    options = tflgpu.Options(device=device_name, execution=execution, precision=precision, cache="off")
    with limited(device_name, Simulation()):
        compiled = tflgpu.compile(case.model, options)
        assert "attention" in compiled.source
        (got,) = compiled.run(case.inputs).values()
    return got, expected


def is_quick(kind: str, hiding: float, device_name: str) -> bool:
    return (kind, hiding) == ("causal", LOWEST) and on_first_runtime(device_name)


@pytest.mark.quick(when=is_quick)
@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_masks_of_all_kinds(heads: Heads, kind: str, hiding: float, device_name: str) -> None:
    got, expected = results(heads, *drawn(heads, kind, hiding), device_name, "fp32")
    np.testing.assert_allclose(got, expected, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_that_half_cannot_hold(kind: str, device_name: str) -> None:
    got, expected = results(HEADS[0], *drawn(HEADS[0], kind, LOWEST), device_name, "fp16")
    np.testing.assert_allclose(got, expected, atol=2e-2)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", ["keys", "values"])
@pytest.mark.parametrize("hiding", HIDING)
def test_hidden_keys_spread_nan(hiding: float, operand: str, number: float, device_name: str) -> None:
    """LiteRT gives the same: NaN and -inf are NaN, and so is a value of infinity by 0."""
    operands, mask = drawn(HEADS[0], "last", hiding)
    operands[1 if operand == "keys" else 2][0, 650, 3] = number
    got, expected = results(HEADS[0], operands, mask, device_name, "fp32")
    assert np.isnan(expected).any()
    np.testing.assert_allclose(got, expected, atol=2e-5)


@pytest.mark.parametrize("factor", [1e3, 1e5, 1e12])
@pytest.mark.parametrize("hiding", HIDING)
def test_scores_that_reach_a_mask_still_count(hiding: float, factor: float, device_name: str) -> None:
    """-1e9 hides a key from scores below that. Keys are large, or a row of queries is, or both."""
    for row_of_queries, keys in ((factor, factor), (factor * 1e3, 1), (1, factor * 1e3)):
        operands, mask = drawn(HEADS[0], "last", hiding)
        operands[0][0, 20] *= np.float32(row_of_queries)
        operands[1] *= np.float32(keys)
        got, expected = results(HEADS[0], operands, mask, device_name, "fp32")
        np.testing.assert_allclose(got, expected, atol=1e-3)


def test_a_row_that_sees_nothing_is_nan_with_infinite_masks(device_name: str) -> None:
    operands, mask = drawn(HEADS[0], "last", -np.inf)
    mask[11] = -np.inf
    got, expected = results(HEADS[0], operands, mask, device_name, "fp32")
    assert np.isnan(got[:, 11]).all()
    assert np.isnan(got).sum() == np.isnan(expected).sum()
