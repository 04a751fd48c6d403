"""``Numerics(tolerance=)`` for a device with matrix units, whose kernels round and fuse what others do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.conftest import missing
from tests.ops.case import Net
from tests.support import emulated_matrix_units as emulated
from tests.support.models import Builder
from tests.support.planning import templates
from tests.support.template_cases import excitation
from tests.support.unoptimized import without_optimization
from tflgpu import compiler
from tflgpu.artifact.artifact import Artifact
from tflgpu.artifact.executable import Executable
from tflgpu.codegen.render import KernelSource
from tflgpu.codegen.whole_kernels import assemble
from tflgpu.compiler import Parts, compile_model
from tflgpu.measure.mixed_precision.calibrator import Calibrator
from tflgpu.measure.mixed_precision.probe import Probe
from tflgpu.plan import make_plan
from tflgpu.report.half_precision import MixedPrecision
from tflgpu.report.profile import Stopwatch
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import Session, open_session
from tflgpu.target import Target

TARGET = replace(emulated.TARGET, executor="launch")
IN_FLOAT = replace(TARGET, storage="float")

IMAGE, DEPTH, LAYERS = (1, 12, 12, 3), 32, 4
BRIGHT = 1000.0  # of an image; half has no more than two numbers between two whole ones there
TOLERANCE = 0.01


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A device that runs kernels for matrix units."""
    if all(d.platform != emulated.DEVICE for d in tflgpu.devices()):
        missing(f"the OpenCL runtime {emulated.DEVICE!r}")

    def emulating(source: KernelSource, executable: Executable, target: Target) -> tuple[str, Executable]:
        text, executable = assemble(source, executable, target)
        return (emulated.portable(text, target) if target.matrix_unit else text), executable

    monkeypatch.setattr(compiler, "assemble", emulating)
    with without_optimization():
        yield open_session(choose(emulated.DEVICE))


def model() -> bytes:
    """Convolutions of an image. The first takes differences of its channels, which are small."""
    builder, random = Builder(), np.random.default_rng(0)
    x, depth = builder.input(IMAGE), IMAGE[-1]
    differences = np.resize([(1, -1, 0), (0, 1, -1), (-1, 0, 1)], (DEPTH, 1, 1, depth))
    layers = (random.normal(size=(DEPTH, 1, 1, DEPTH)) / DEPTH**0.5 for _ in range(LAYERS))
    for weights in (differences, *layers):
        constants = (
            builder.constant(weights.astype(np.float16).astype(np.float32)),
            builder.constant(np.zeros(DEPTH, np.float32)),
        )
        x = builder.add("CONV_2D", [x, *constants], (*IMAGE[:3], DEPTH), padding="SAME", stride_h=1, stride_w=1)
    return builder.finish([x])


def image(seed: int, brightness: float) -> NDArray[np.float32]:
    return (brightness + np.random.default_rng(seed).random(IMAGE)).astype(np.float32)


def run(artifact: Artifact, session: Session, x: NDArray[np.float32]) -> NDArray[np.float32]:
    (result,) = Instance(artifact, session, Stopwatch()).run([x], {})
    return result


def compiled(session: Session, tolerance: float, brightness: float) -> tuple[Artifact, MixedPrecision]:
    calibration = [image(seed, brightness) for seed in range(3)]
    calibrator = Calibrator(tolerance, calibration, session, None, None)
    (artifact,) = compile_model(model(), tflgpu.Options(), TARGET, calibrator=calibrator)
    assert artifact.report.mixed is not None
    return artifact, artifact.report.mixed


def sources(artifact: Artifact) -> list[str]:
    return [piece.source for piece in artifact.pieces]


def error(session: Session, artifact: Artifact, brightness: float) -> float:
    """The largest on an image that calibration did not see, against the plan in float."""
    (exact,) = compile_model(model(), tflgpu.Options(), IN_FLOAT)
    x = image(9, brightness)
    expected, got = run(exact, session, x), run(artifact, session, x)
    return float(abs(got - expected).max() / np.ptp(expected))


def test_matrix_units_stay_where_half_is_near_enough(session: Session) -> None:
    artifact, found = compiled(session, TOLERANCE, 0.0)
    assert found.kept == () and not found.fp32_reason
    assert artifact.pieces[0].source.count("mma_16x8x16(") > 1
    assert error(session, artifact, 0.0) < TOLERANCE


def test_an_image_that_half_does_not_hold_is_not_rounded(session: Session) -> None:
    (half,) = compile_model(model(), tflgpu.Options(), TARGET)
    assert error(session, half, BRIGHT) > 5 * TOLERANCE
    artifact, found = compiled(session, TOLERANCE, BRIGHT)
    assert len(found.kept) < found.tensors and not found.fp32_reason
    assert found.error < TOLERANCE
    assert error(session, artifact, BRIGHT) < TOLERANCE


def test_the_last_resort_is_the_plan_of_fp32(session: Session) -> None:
    artifact, found = compiled(session, 1e-6, BRIGHT)
    assert len(found.kept) == found.tensors and found.fp32_reason and found.error == 0
    (exact,) = compile_model(model(), tflgpu.Options(), IN_FLOAT)
    assert sources(artifact) == sources(exact)


def test_what_another_plan_fuses_can_be_kept(session: Session) -> None:
    """The vectors within a squeeze-and-excitation: they are stored once a tensor beside them is in float."""
    captured: list[Parts] = []

    def keep_nothing(parts: Parts, target: Target) -> tuple[Parts, Target]:
        captured.append(parts)
        return parts, target

    net = Net(seed=1)
    net.output(excitation(net))
    compile_model(net.case().model, tflgpu.Options(), TARGET, calibrator=keep_nothing)
    probe = Probe(captured[0], TARGET, session, None)
    ((graph,),) = captured[0].graphs.values()
    assert "gpu/excite" in templates(make_plan(graph, IN_FLOAT))
    kept = [replace(graph[p.tensor], precise=True) for p in probe.places if p.tensor in graph.tensors]
    plan = make_plan(graph.with_nodes(graph.nodes, kept), TARGET)
    assert "gpu/excite" not in templates(plan)
    assert {plan.storage[k.node.output].type for k in plan.kernels} == {"float"}
