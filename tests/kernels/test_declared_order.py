"""Lowerings and rewrites in an order that nobody declared: plans must not depend on it."""

from __future__ import annotations

from random import Random
from typing import TypeVar

import pytest

from tests.conftest import missing
from tests.digests import EXECUTORS, TARGETS, digests
from tests.support.networks_of_today import NAMES, SHARED, redrawn
from tflgpu.compiler import Parts, compile_model, make_plans
from tflgpu.kernels import architecture
from tflgpu.kernels.architecture import LOWERINGS, REWRITES, Lowering, architectures, declared_order
from tflgpu.options import Options
from tflgpu.report.profile import Stopwatch
from tflgpu.target import Target

T = TypeVar("T")

MODELS = {path.stem: path for path in (SHARED / "models").glob("*.tflite")} | {name: None for name in NAMES}
QUICK = ("selfie_segmenter", "face_landmark", "torchaudio_conformer", "mobilenetv3_large_100.tflite.xz")

# All targets for some models, and the targets in turns for the others.
CASES = [(model, target) for model in QUICK for target in TARGETS]
CASES += [(model, [*TARGETS][n % len(TARGETS)]) for n, model in enumerate(sorted(MODELS)) if model not in QUICK]


@pytest.mark.quick(when=lambda model: model in QUICK)
@pytest.mark.parametrize(("model", "target"), CASES)
def test_plans_do_not_depend_on_an_order_that_is_not_declared(
    model: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not MODELS:
        missing(f"the folder of models {SHARED}")
    path = MODELS[model]
    data = redrawn(model) if path is None else path.read_bytes()
    device = Target(**TARGETS[target], executor=EXECUTORS[target][1], storage="half")  # type: ignore[arg-type]
    found: list[Parts] = []

    def kept(parts: Parts, target: Target) -> tuple[Parts, Target]:
        found.append(parts)
        return parts, target

    expected = digests(*compile_model(data, Options(), device, calibrator=kept))
    draw = Random(model + target)
    is_reversed = draw.choice((True, False))

    def shuffled(known: list[T]) -> list[T]:
        return known[::-1] if is_reversed else draw.sample(known, len(known))

    monkeypatch.setattr(architecture, "REWRITES", declared_order(shuffled(REWRITES)))
    orders = {kind: declared_order(shuffled(known)) for kind, known in LOWERINGS.items()}
    by_precedence = {kind: sorted(known, key=Lowering.precedence) for kind, known in orders.items()}
    monkeypatch.setattr(architecture, "LOWERINGS", by_precedence)
    [parts] = found  # no order has a part in how files become graphs
    assert digests(parts.artifact(make_plans(parts.graphs, device, Stopwatch()))) == expected


def test_every_order_names_what_is_registered() -> None:
    architectures()
    for known in (REWRITES, *LOWERINGS.values()):
        for each in known:
            beside = {other.name: other for other in known}
            assert all(name in beside for name in each.after), each.name
    for each in REWRITES:
        assert {other.phase for other in REWRITES if other.name in each.after} <= {each.phase}
