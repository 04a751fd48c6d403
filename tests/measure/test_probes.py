"""Measurements of devices: their range, the cost model that follows, and its place in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

import tflgpu
from scripts import measure_device
from tests.safety.models import scaled
from tflgpu.artifact import serializer
from tflgpu.artifact.cache import Cache
from tflgpu.artifact.cache.key import probes_key
from tflgpu.artifact.records import decode, encode
from tflgpu.codegen.probe_source import probe_program
from tflgpu.errors import DeviceError
from tflgpu.measure import device_model, known_devices, probing
from tflgpu.measure.device_model import planned_target
from tflgpu.measure.known_devices import KnownDevice
from tflgpu.options import CacheFiles, Execution, Options
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import Session, open_session
from tflgpu.target import Limits
from tflgpu.target.probes import ProbeProgram, Probes, cost_model_from, preferred
from tflgpu.target.target import BUILT_IN_COSTS

# An H200 by its data sheet and by other known facts: 1.98 GHz, 132 multiprocessors.
H200 = Probes(
    compute_units=132,
    clock=1.98e9,
    float_macs=132 * 128 * 1.98e9,
    half_macs=0.0,
    matrix_macs=4e14,
    vector_width=1,
    tile_products=((1, 1, 132 * 4 * 1.98e9), (2, 2, 132 * 8 * 1.98e9), (4, 4, 132 * 8 * 1.98e9)),
    split_products=132 * 7.8 * 1.98e9,
    global_bytes=4e12,
    shared_bytes=132 * 32 * 1.98e9,
    cached_bytes=132 * 128 * 1.98e9,
    local_bytes=132 * 128 * 1.98e9,
    memory_latency=800 / 1.98e9,
    exchange=100 / 1.98e9,
    launch=2e-6,
    round_trip=1e-5,
    grid_barrier=0.63e-6,
    lockstep=32,
    seconds=1.0,
)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Session]]:
    """The sessions that were measured, each of which has an H200's numbers. Nothing was measured before."""
    sessions: list[Session] = []

    def measure(session: Session, program: ProbeProgram) -> Probes:
        sessions.append(session)
        return replace(H200, seconds=float(len(sessions)))

    monkeypatch.setattr(probing, "measure_probes", measure)
    device_model.KNOWN.forget()
    yield sessions
    device_model.KNOWN.forget()


def test_an_h200_has_about_the_built_in_costs() -> None:
    built_in, measured = asdict(BUILT_IN_COSTS), asdict(cost_model_from(H200))
    for pixels, slices, products in measured.pop("tile_products"):
        by_loads = pixels * slices / BUILT_IN_COSTS.working(1, pixels + slices, pixels * slices, ())
        assert products == pytest.approx(by_loads, rel=0.25)
    for name, cost in measured.items():
        assert cost == pytest.approx(built_in[name], rel=0.25), name


def test_products_in_half_cost_what_they_take_there() -> None:
    fast = replace(H200, half_macs=2 * H200.float_macs)
    assert cost_model_from(fast) == cost_model_from(H200)
    in_half = cost_model_from(fast, "half")
    assert in_half.products == pytest.approx(2 * cost_model_from(fast).products, rel=0.1)
    for *tile, products in cost_model_from(fast).tile_products:
        assert in_half.working(1, 1, 1, tuple(tile)) == pytest.approx(0.5 / products, rel=0.1)
    assert in_half.loaded_vec4s == cost_model_from(fast).loaded_vec4s


@pytest.mark.parametrize("speed", [1.0, 1.1, 1.2, 1.5])
def test_rates_of_tiles_keep_their_order(speed: float) -> None:
    """An eighth less was rounded to the same at some speeds, and smaller tiles taken in place of larger ones."""
    rates = ((1, 1, 3.5e8), (4, 2, 3.35e9), (4, 4, 3.85e9))
    found = replace(H200, tile_products=tuple((*tile, speed * rate) for *tile, rate in rates))
    _, (*_, some), (*_, best) = cost_model_from(found).tile_products
    assert some / best == pytest.approx(3.35 / 3.85, rel=0.05)


@pytest.mark.parametrize(
    ("value", "expected"), [(1.0, 1.0), (0.0999, 0.1), (1604.0, 1500.0), (97.0, 100.0), (3.4e7, 3.3e7)]
)
def test_costs_are_preferred_numbers(value: float, expected: float) -> None:
    assert preferred(value) == expected


@pytest.mark.quick(when=lambda device_name: "Intel" in device_name)
def test_devices_are_measured(device_name: str) -> None:
    device = choose(device_name)
    program = probe_program(device.limits, device.compute_units, ptx=False, matrix_units=False)
    found = probing.measure_probes(open_session(device), program)
    assert found.is_sound
    # Other processes may have the cores meanwhile.
    assert 1e6 < found.float_macs < 1e14 and 1e6 < found.global_bytes < 1e13
    assert found.cached_bytes > 1e6 and found.local_bytes > 1e6
    assert 1e-10 < found.memory_latency < 1e-2 and 1e-9 < found.exchange < 1e-1
    assert (found.half_macs > 0) == device.limits.half_arithmetic
    costs = asdict(cost_model_from(found))
    assert len(costs.pop("tile_products")) == 5
    assert all(cost > 0 for cost in costs.values())


def test_probes_for_matrix_units_and_barriers_are_rendered() -> None:
    """Their text is NVIDIA's assembly, which no compiler of a CPU takes."""
    source = probe_program(Limits(), 132, ptx=True, matrix_units=True).source
    assert "grid_arrive(" in source and "multiply_matrices(" in source


def test_a_device_with_next_to_nothing_is_measured(device_name: str) -> None:
    """Work-groups of one work-item, and no local memory."""
    program = probe_program(Limits(work_group_size=1, local_bytes=0), 2, ptx=False, matrix_units=False)
    found = probing.measure_probes(open_session(choose(device_name)), program)
    assert found.is_sound and found.local_bytes == found.exchange == 0.0
    assert cost_model_from(found).local_vec4s > 0
    assert decode(Probes, encode(found, []), []) == found, "the cache keeps it"


def test_a_measurement_is_made_once_and_plans_depend_on_it(
    measured: list[Session], device_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(
        device=device_name,
        execution=Execution(kernels="gpu", cost_model="measured"),
        cache_files=CacheFiles(path=tmp_path),
    )
    device = choose(device_name)
    assert planned_target(device, options).cost_model == BUILT_IN_COSTS, "nothing may be measured without a session"
    for process in range(2):
        device_model.KNOWN.forget()
        with tflgpu.compile(scaled(2.0), options) as model:
            assert ("plan" in model.seconds) == (process == 0), "the second one is of the cache"
        assert planned_target(device, options).cost_model == cost_model_from(H200)
        assert len(measured) == 1
    for other in (Execution(kernels="gpu", cost_model="built-in"), Execution(kernels="cpu", cost_model="measured")):
        assert planned_target(device, replace(options, execution=other)).cost_model == BUILT_IN_COSTS
    monkeypatch.delenv(device_model.VARIABLE)
    known = planned_target(
        device, replace(options, execution=replace(options.execution, cost_model="auto"), cache="require")
    )
    assert known.cost_model == cost_model_from(H200)


@pytest.mark.filterwarnings("ignore::tflgpu.errors.CacheWarning")
def test_a_damaged_measurement_is_a_miss(
    measured: list[Session], device_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = choose(device_name)
    options = Options(
        device=device_name,
        execution=Execution(kernels="gpu", cost_model="measured"),
        cache_files=CacheFiles(path=tmp_path),
    )
    session, cache = open_session(device), Cache([tmp_path])
    key = probes_key(serializer.PROBES_REVISION, device.identity)
    for record in ({}, {"probes": {"is": "Probes"}}, {"probes": asdict(replace(H200, clock=0.0)) | {"is": "Probes"}}):
        device_model.KNOWN.forget()
        cache.store(key, {}, record)
        before = len(measured)
        planned_target(device, options, lambda: session)
        assert len(measured) == before + 1
    (stored,) = (tmp_path / "v1" / "probes").iterdir()
    stored.write_bytes(stored.read_bytes()[:-1])
    device_model.KNOWN.forget()
    planned_target(device, options, lambda: session)
    assert len(measured) == 4
    planned_target(device, options, lambda: session)
    assert len(measured) == 4


@pytest.mark.usefixtures("measured")
def test_probes_that_fail_leave_the_built_in_costs(
    device_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(session: Session, program: ProbeProgram) -> Probes:
        raise DeviceError("it burns")

    monkeypatch.setattr(probing, "measure_probes", fail)
    options = Options(
        device=device_name,
        execution=Execution(kernels="gpu", cost_model="measured"),
        cache_files=CacheFiles(path=tmp_path),
    )
    device = choose(device_name)
    assert planned_target(device, options, partial(open_session, device)).cost_model == BUILT_IN_COSTS


@pytest.mark.parametrize("options", [Options(cache="off"), Options(cache="read")])
def test_only_gpus_with_a_cache_are_measured_unasked(
    measured: list[Session], device_name: str, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(device_model.VARIABLE)
    cpu = choose(device_name)
    gpu = replace(cpu, type="gpu")
    session = open_session(cpu)
    options = replace(
        options,
        execution=replace(options.execution, kernels="gpu"),
        cache_files=replace(options.cache_files, path=tmp_path),
    )
    for device in (cpu, gpu):
        assert planned_target(device, options, lambda: session).cost_model == BUILT_IN_COSTS
    kept = replace(options, cache="readwrite")
    assert planned_target(cpu, kept, lambda: session).cost_model == BUILT_IN_COSTS
    assert not measured
    assert planned_target(gpu, kept, lambda: session).cost_model == cost_model_from(H200)
    assert len(measured) == 1


def test_the_environment_chooses_the_costs(
    measured: list[Session], device_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, options = (
        choose(device_name),
        Options(execution=Execution(kernels="gpu"), cache_files=CacheFiles(path=tmp_path)),
    )
    monkeypatch.setenv(device_model.VARIABLE, "measured")
    assert planned_target(device, options, partial(open_session, device)).cost_model == cost_model_from(H200)
    monkeypatch.setenv(device_model.VARIABLE, "built-in")
    assert planned_target(device, options).cost_model == BUILT_IN_COSTS
    monkeypatch.setenv(device_model.VARIABLE, "guessed")
    with pytest.raises(ValueError, match="TFLGPU_COST_MODEL is 'guessed'; it must be one of 'auto', 'measured'"):
        planned_target(device, options)


def test_known_devices_are_sound_and_of_these_probes() -> None:
    rows = known_devices.known_devices()
    assert len({(row.platform, row.device) for row in rows}) == len(rows) > 0
    for row in rows:
        assert row.probes.is_sound and row.revision == serializer.PROBES_REVISION, "measure it anew, or leave it out"
        assert all(cost > 0 for cost in asdict(cost_model_from(row.probes)).values() if isinstance(cost, float))


def test_known_devices_are_measured_only_where_that_is_asked_for(
    measured: list[Session], device_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(device_model.VARIABLE)
    device = replace(choose(device_name), type="gpu")
    probes = replace(H200, compute_units=device.compute_units, launch=1e-4)
    row = KnownDevice(device.platform, device.name, "another", "2026-11-23", serializer.PROBES_REVISION, probes)
    monkeypatch.setattr(known_devices, "known_devices", lambda: (row,))
    options, session = (
        Options(device=device_name, execution=Execution(kernels="gpu"), cache_files=CacheFiles(path=tmp_path)),
        open_session(device),
    )
    for each in (options, replace(options, cache="off")):
        assert planned_target(device, each, lambda: session).cost_model == cost_model_from(probes)
    assert not measured
    assert (
        planned_target(
            device, replace(options, execution=replace(options.execution, cost_model="built-in")), lambda: session
        ).cost_model
        == BUILT_IN_COSTS
    )
    part = replace(device, compute_units=device.compute_units + 1)
    assert known_devices.shipped_probes(part.identity, part.compute_units) is None
    asked = planned_target(
        device, replace(options, execution=replace(options.execution, cost_model="measured")), lambda: session
    )
    assert asked.cost_model == planned_target(device, options, lambda: session).cost_model == cost_model_from(H200)
    assert len(measured) == 1


def test_a_measured_device_becomes_a_known_one(
    measured: list[Session], device_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "known_devices.json"
    monkeypatch.setattr(measure_device, "TABLE", table)
    monkeypatch.setattr("sys.argv", ["measure_device", "--device", device_name, "--rounds", "3"])
    measure_device.main()
    assert len(measured) == 3
    rows = {(row.platform, row.device): row for row in known_devices.rows_of(table)}
    platform, name, driver = choose(device_name).identity
    row = rows.pop((platform, name))
    assert (row.driver, row.probes) == (driver, replace(H200, seconds=2.0))
    assert tuple(rows.values()) == known_devices.known_devices(), "the others stay"


def test_measurements_that_disagree_make_no_known_device() -> None:
    busy = [replace(H200, launch=launch) for launch in (2e-6, 2.1e-6, 3e-6)]
    assert measure_device.typical(busy[:2] * 2).launch == 2e-6
    with pytest.raises(ValueError, match="launch is from 2e-06 to 3e-06: something else runs; measure again"):
        measure_device.typical(busy)
