"""The ends of classifiers: mean, layer and softmax in two kernels, and when they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from tests.kernels.gpu.reductions import reduced
from tests.kernels.networks import convolution, rounded
from tests.ops import reference
from tests.ops.case import Net, Tensor
from tests.ops.windows import Window
from tests.support import emulated_matrix_units as emulated
from tests.support.planning import graph_of, kinds, plan_of, templates
from tflgpu.kernels.gpu import shared_sums
from tflgpu.plan.plan import Plan
from tflgpu.plan.planning import make_plan

# Local memory of its own, as Intel's CPU runtime does not say that it has.
GPU = replace(emulated.PORTABLE, storage="float")
TWO_KERNELS = ["gpu/layer_of_mean", "portable/softmax"]


def logits(net: Net, shape: tuple[int, ...], classes: int, *, dense: bool = False) -> Tensor:
    """A layer of the mean of a computed image, as a convolution or as a dense layer."""
    x = net.input(net.normal(shape))
    x = net.op("ABS", [x], abs(x.value))
    mean = reduced(net, "MEAN", x, (1, 2))
    if not dense:
        return convolution(net, mean, classes, Window((1, 1)), "NONE")
    rows = net.op("RESHAPE", [mean, net.integers([shape[0], shape[3]])], mean.value[:, 0, 0])
    weights = net.constant(net.normal((classes, shape[3]), shape[3] ** -0.5))
    value = rows.value @ weights.value.T
    return net.op("FULLY_CONNECTED", [rows, weights], value, activation="NONE", terms=shape[3])


def softmax(net: Net, x: Tensor, beta: float = 1.0) -> Tensor:
    return net.op("SOFTMAX", [x], reference.softmax(beta * x.value), {"beta": beta})


def planned(net: Net, storage: Literal["half", "float"] = "float") -> Plan:
    """The plan of a network for a GPU, on which its results are right."""
    case = net.case()
    plan = plan_of(case.model, replace(GPU, storage=storage))
    emulated.check(plan, case)
    return plan


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("shape", [(1, 7, 7, 96), (1, 5, 3, 10)])
def test_mean_and_layer_are_rounded_where_integers_are(shape: tuple[int, ...], dense: bool) -> None:
    net, classes = Net(seed=3), 101
    x = net.input(net.normal(shape))
    x = net.op("ABS", [x], abs(x.value))
    mean = rounded(net, reduced(net, "MEAN", x, (1, 2)), 0.25)
    if dense:
        rows = net.op("RESHAPE", [mean, net.integers([1, shape[3]])], mean.value[:, 0, 0])
        weights = net.constant(net.normal((classes, shape[3]), 0.2))
        y = net.op("FULLY_CONNECTED", [rows, weights], rows.value @ weights.value.T, activation="RELU", terms=shape[3])
    else:
        y = convolution(net, mean, classes, Window((1, 1)), "NONE")
    net.output(softmax(net, rounded(net, y, 0.5)))
    assert templates(planned(net))[-2:] == TWO_KERNELS


@pytest.mark.parametrize("storage", ["half", "float"])
@pytest.mark.parametrize(
    ("shape", "classes"),
    [((1, 7, 7, 96), 101), ((1, 5, 3, 10), 3), ((1, 9, 20, 33), 1001), ((1, 2, 2, 2048), 1000), ((1, 40, 50, 6), 5)],
)
def test_a_layer_of_a_mean_is_summed_up_by_its_softmax(
    shape: tuple[int, ...], classes: int, storage: Literal["half", "float"]
) -> None:
    net = Net(seed=classes)
    net.output(softmax(net, logits(net, shape, classes, dense=classes % 2 == 0), beta=0.5 + classes % 2))
    assert templates(planned(net, storage))[-2:] == TWO_KERNELS


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_any_number_of_shares_gives_the_sums(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of them have fewer slices than others, or none."""
    monkeypatch.setattr(shared_sums, "_best_count_of_head", lambda *_: count)
    net = Net(seed=count)
    net.output(softmax(net, logits(net, (1, 3, 5, 70), 33)))
    plan = planned(net)
    assert templates(plan)[-2:] == TWO_KERNELS
    assert plan.kernels[-2].kernel.shares == count


@pytest.mark.parametrize("size", [64, 16, 1])
def test_small_groups_have_shares_that_they_can_sum_up(size: int) -> None:
    """Where the device's compiler allows the kernel no larger ones: an item has to be there for each slice."""
    net = Net(seed=size)
    net.output(softmax(net, logits(net, (1, 2, 2, 1030), 33)))
    case = net.case()
    plan = plan_of(case.model, GPU)
    assert templates(plan)[-2:] == TWO_KERNELS
    narrow = make_plan(graph_of(case.model), GPU.with_group_sizes({plan.kernels[-2].key: size}))
    assert all(kernel.kernel.local_size <= size for kernel in narrow.kernels if kernel.kernel.shares > 1)
    emulated.check(narrow, case)


def test_what_every_node_computes_can_be_stored() -> None:
    net = Net(seed=3)
    net.output(softmax(net, logits(net, (1, 7, 7, 96), 101)))
    plan = make_plan(graph_of(net.case().model), GPU, fuse=False)
    assert kinds(plan)[-3:] == ["reduce", "convolution", "softmax"]


def test_other_ends_stay_as_they_are() -> None:
    """The ends of two images, those behind a sum with another input, and with a layer or a mean that something else
    reads.
    """
    nets = [Net(seed=seed) for seed in range(4)]
    nets[0].output(softmax(nets[0], logits(nets[0], (2, 3, 4, 9), 7)))
    added, sums = nets[1].input(nets[1].normal((1, 1, 1, 7))), logits(nets[1], (1, 3, 4, 9), 7)
    nets[1].output(softmax(nets[1], nets[1].op("ADD", [sums, added], sums.value + added.value, activation="NONE")))
    layer = logits(nets[2], (1, 3, 4, 9), 7)
    nets[2].output(layer)
    nets[2].output(softmax(nets[2], layer))
    image = nets[3].input(nets[3].normal((1, 3, 4, 9)))
    mean = reduced(nets[3], "MEAN", nets[3].op("MUL", [image, image], image.value**2, activation="NONE"), (1, 2))
    nets[3].output(mean)
    nets[3].output(softmax(nets[3], convolution(nets[3], mean, 7, Window((1, 1)), "NONE")))
    for net in nets:
        assert "gpu/layer_of_mean" not in templates(planned(net))
