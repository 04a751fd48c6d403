"""Execution(tuning): which candidates are measured, which wins, and what is remembered. Times are given, not taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tflgpu
from tests.kernels.fused_networks import convolutions
from tests.quick import on_first_runtime
from tests.support.models import Builder
from tests.support.planning import graph_of, plan_of
from tests.support.targets import H200
from tflgpu.artifact import serializer
from tflgpu.errors import CacheWarning
from tflgpu.kernels.request import Request, TileConfig
from tflgpu.measure import tuner
from tflgpu.measure.tuner import FEW, WORTHWHILE, DeviceTuner, best_choices, in_turns
from tflgpu.options import CacheFiles, Execution, Options
from tflgpu.plan import Plan, make_plan
from tflgpu.runtime.opencl.devices import choose
from tflgpu.target import Target

pytestmark = pytest.mark.usefixtures("fresh_warnings")

SIZE = 12


def network(*channels: int, seed: int = 0) -> bytes:
    """A 3x3 convolution of an image, then pointwise ones to so many channels, with a depthwise one before the last."""
    builder = Builder(seed)
    x = builder.input((1, SIZE, SIZE, 3), name="x")
    for i, out in enumerate(channels):
        if i and i == len(channels) - 1:
            x = builder.depthwise(x)
        x = builder.convolution(x, out, 1 if i else 3)
    return builder.finish([x])


X = np.random.default_rng(1).normal(size=(1, SIZE, SIZE, 3)).astype(np.float32)


def answer(model: tflgpu.CompiledModel) -> np.ndarray:
    (result,) = model.run(X).values()
    return result


def asked(data: bytes, target: Target = H200) -> list[tuple[str, Sequence[TileConfig]]]:
    """The signature and the candidates of every kernel that has any, in the order of the plan."""
    found = []

    def note(request: Request, ranked: Sequence[TileConfig]) -> TileConfig:
        if not request.parts:
            found.append((request.signature, ranked))
        return ranked[0]

    make_plan(graph_of(data), target, note)
    return found


def test_the_fastest_candidate_wins() -> None:
    found = best_choices({"a": [(1,), (2,), (3,)], "b": [(4,), (5,)]}, {"a": [1.0, 0.5, 0.7], "b": [1.0, 2.0]})
    assert found == {"a": (2,), "b": (4,)}


def test_noise_changes_nothing() -> None:
    times = {"a": [1.0, WORTHWHILE + 0.001], "b": [1.0, WORTHWHILE - 0.001]}
    assert best_choices({"a": [(1,), (2,)], "b": [(1,), (2,)]}, times) == {"a": (1,), "b": (2,)}


class FakeExecutor:
    """An executor without inputs whose kernels take the given seconds, run after run."""

    def __init__(self, *runs: list[float]) -> None:
        self.executable = SimpleNamespace(inputs=())
        self._runs = cycle(runs)

    def profile(self, _: list[np.ndarray], runs: int) -> list[tuple[float, float]]:
        assert runs == 1
        return [(1.0, 1.0 + seconds) for seconds in next(self._runs)]


def test_a_busy_machine_is_looked_past() -> None:
    executors = FakeExecutor([3.0, 1.0], [2.0, 9.0]), FakeExecutor([5.0, 4.0], [6.0, 3.0])
    first, second = in_turns(executors)  # type: ignore[arg-type]
    assert first.tolist() == [2.0, 1.0] and second.tolist() == [5.0, 3.0]


def test_a_plan_takes_what_it_is_given() -> None:
    graph, default = graph_of(convolutions(20)), plan_of(convolutions(20))
    assert [k.kernel.parameters for k in make_plan(graph, H200).kernels] == [
        k.kernel.parameters for k in default.kernels
    ]
    _, ranked = asked(convolutions(20))[1]
    for choice in ranked:
        plan = make_plan(graph, H200, lambda _, candidates: choice if choice in candidates else candidates[0])  # noqa: B023
        parameters = vars(plan.kernels[1].kernel.parameters)
        assert tuple(parameters[name] for name in ("row_blocks", "column_blocks", "split_k")) == choice


def test_equal_layers_of_different_models_have_one_signature() -> None:
    target = replace(H200, matrix_unit=None)
    first, second = (dict(asked(network(*channels), target)) for channels in ((32, 16, 8), (48, 32, 16, 8)))
    shared = first.keys() & second.keys()
    kinds = sorted(signature.split("'")[1] for signature in shared)
    assert kinds == ["convolution", "convolution", "depthwise"]  # 32 -> 16, 16 -> 16 depthwise, 16 -> 8
    assert all(first[signature] == second[signature] for signature in shared)


@pytest.mark.parametrize("change", [{"compute_units": 4}, {"storage": "float"}, {"executor": "launch"}])
def test_a_signature_tells_targets_apart(change: dict[str, object]) -> None:
    one, other = (dict(asked(network(32), target)) for target in (H200, replace(H200, **change)))  # type: ignore[arg-type]
    assert not one.keys() & other.keys()


@pytest.mark.quick(when=lambda family, device_name: on_first_runtime(device_name) and family == "cpu")
@pytest.mark.second_runtime(when=lambda family: family == "cpu")
@pytest.mark.parametrize("family", ["cpu", "gpu"])
def test_every_candidate_computes_the_same(family: str, device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(device=device_name, execution=Execution(kernels=family), precision="fp32", cache="off")  # type: ignore[arg-type]
    data = network(32, 16, 24)
    expected = answer(tflgpu.compile(data, options))
    target = tflgpu.compile(data, options).device.target(options)
    candidates = dict(asked(data, target))
    monkeypatch.setattr(DeviceTuner, "_open", lambda _self, plan: FakeExecutor([1.0] * len(plan.kernels)))
    for rank in range(max(map(len, candidates.values()))):
        last = {s: ranked[min(rank, len(ranked) - 1)] for s, ranked in candidates.items()}
        monkeypatch.setattr(tuner, "best_choices", lambda found, _: {s: last.get(s, found[s][0]) for s in found})  # noqa: B023
        got = answer(tflgpu.compile(data, replace(options, execution=replace(options.execution, tuning="exhaustive"))))
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


class Measured:
    """Takes the place of measuring: the later a plan's turn, the faster all of its kernels. Notes the plans."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def __call__(self, plan: Plan) -> FakeExecutor:
        self.plans.append(plan)
        return FakeExecutor([1 / len(self.plans)] * len(plan.kernels))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    found = Measured()
    monkeypatch.setattr(DeviceTuner, "_open", lambda _self, plan: found(plan))
    return found


def compiled(data: bytes, device: str, cache_dir: Path, effort: str = "fast", **other: object) -> tflgpu.CompiledModel:
    options = Options(
        device=device,
        execution=Execution(kernels="gpu", tuning=effort),
        precision="fp32",
        cache_files=CacheFiles(path=cache_dir),
    )
    return tflgpu.compile(data, replace(options, **other))  # type: ignore[arg-type]


def test_fast_measures_few_and_exhaustive_all(measured: Measured, tmp_path: Path, device_name: str) -> None:
    model = compiled(network(32, 16), device_name, tmp_path)
    assert len(measured.plans) == FEW
    assert "tune" in model.seconds
    compiled(network(32, 16), device_name, tmp_path, "exhaustive")
    options = Options(device=device_name, execution=Execution(kernels="gpu"), precision="fp32")
    candidates = asked(network(32, 16), model.device.target(options))
    assert len(measured.plans) == FEW + max(len(ranked) for _, ranked in candidates)


def test_without_tuning_nothing_is_measured(measured: Measured, tmp_path: Path, device_name: str) -> None:
    model = compiled(network(32, 16), device_name, tmp_path, "none")
    assert not measured.plans and "tune" not in model.seconds


def test_a_warm_start_measures_nothing(measured: Measured, tmp_path: Path, device_name: str) -> None:
    cold = compiled(network(32, 16), device_name, tmp_path)
    count = len(measured.plans)
    warm = compiled(network(32, 16), device_name, tmp_path)
    assert len(measured.plans) == count and "plan" not in warm.seconds
    assert warm.source == cold.source
    assert warm.source != compiled(network(32, 16), device_name, tmp_path, "none").source


def test_another_model_measures_only_what_is_new(measured: Measured, tmp_path: Path, device_name: str) -> None:
    compiled(network(32, 16, 8), device_name, tmp_path)
    count = len(measured.plans)
    retrained = compiled(network(32, 16, 8, seed=1), device_name, tmp_path)
    assert "plan" in retrained.seconds and len(measured.plans) == count
    compiled(network(32, 16, 12), device_name, tmp_path)  # its last layer is another
    assert len(measured.plans) == count + FEW
    trials = [[k.kernel.parameters for k in plan.kernels] for plan in measured.plans[count:]]
    assert all(kernels[:-1] == trials[0][:-1] for kernels in trials)
    assert trials[1][-1] != trials[0][-1] != trials[2][-1]


def test_without_a_cache_the_next_compilation_measures_again(
    measured: Measured, tmp_path: Path, device_name: str
) -> None:
    for count in (FEW, 2 * FEW):
        compiled(network(32, 16), device_name, tmp_path, cache="off")
        assert len(measured.plans) == count
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["truncated", "foreign", "impossible"])
def test_a_damaged_record_is_measured_again(damage: str, measured: Measured, tmp_path: Path, device_name: str) -> None:
    compiled(network(32), device_name, tmp_path)
    (record,) = (tmp_path / "v1" / "tunings").iterdir()
    if damage == "truncated":
        record.write_bytes(record.read_bytes()[:-1])
    else:
        cache = serializer.open_cache(Options(cache_files=CacheFiles(path=tmp_path)))
        (entry,) = asked_on(device_name, network(32))
        assert cache is not None
        device = choose(device_name)
        key = serializer.tuning_key(entry, "fast", device.identity)
        if damage == "foreign":
            cache.store(key, {}, {"choices": 7})
        else:
            serializer.store_choice(cache, key, (99, 99, 99))
        assert len(list((tmp_path / "v1" / "tunings").iterdir())) == 1, "it is the record of another kernel"
    for model in (tmp_path / "v1" / "models").iterdir():
        model.unlink()
    count = len(measured.plans)
    if damage == "impossible":
        compiled(network(32), device_name, tmp_path)
    else:
        with pytest.warns(CacheWarning, match=r"is damaged|is no tuning"):
            compiled(network(32), device_name, tmp_path)
    assert len(measured.plans) == count + FEW
    for model in (tmp_path / "v1" / "models").iterdir():
        model.unlink()
    compiled(network(32), device_name, tmp_path)
    assert len(measured.plans) == count + FEW, "what was measured again was not kept"


def asked_on(device: str, data: bytes) -> list[str]:
    """The signatures of kernels with candidates on a device."""
    options = Options(device=device, execution=Execution(kernels="gpu"), precision="fp32")
    target = choose(device).target(options)
    return [signature for signature, _ in asked(data, target)]


@pytest.mark.quick(
    when=lambda family, executor, device_name: (
        (family == "gpu") == (executor == "persistent") and on_first_runtime(device_name)
    )
)
@pytest.mark.second_runtime(when=lambda family: family == "cpu")
@pytest.mark.parametrize("executor", ["launch", "persistent"])
@pytest.mark.parametrize("family", ["cpu", "gpu"])
def test_measuring_on_a_device(family: str, executor: str, device_name: str) -> None:
    """Whatever wins, the answer is right."""
    options = Options(
        device=device_name, execution=Execution(kernels=family, executor=executor), precision="fp32", cache="off"
    )  # type: ignore[arg-type]
    data = network(32, 16)
    tuned = tflgpu.compile(data, replace(options, execution=replace(options.execution, tuning="fast")))
    assert tuned.executor == executor
    np.testing.assert_allclose(answer(tuned), answer(tflgpu.compile(data, options)), rtol=1e-4, atol=1e-5)
