"""Random networks: steps on random tensors, and outputs some of which are read as well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.ops.case import Case
from tests.ops.tolerance import EXACT, Tolerance
from tests.safety.drawn.arithmetic import ARITHMETIC
from tests.safety.drawn.control import CONTROL
from tests.safety.drawn.drawing import Drawing
from tests.safety.drawn.integers import integer_case
from tests.safety.drawn.jobs import EXECUTORS, Setting
from tests.safety.drawn.movements import MOVEMENTS, Step
from tests.safety.drawn.quantized import quantized_network
from tflgpu.options import ExecutorChoice, KernelFamily, Precision

MANY_STEPS = Tolerance(fp32=4e-5, fp16=6e-2)


@dataclass(frozen=True)
class Network:
    """chains: of one of integers, the seed of each, which is a network as well. more: see :func:`integer_case`."""

    case: Case
    setting: Setting
    chains: tuple[int, ...] = ()
    more: bool = False

    def __str__(self) -> str:
        return f"{self.setting}: {self.case.describe}"


def network(
    random: Random, executors: Sequence[tuple[KernelFamily, ExecutorChoice]] = EXECUTORS, quantized: bool = False
) -> Network:
    """A network of movements alone, of floats, with control flow, or quantized; all are quantized if that is asked
    for.
    """
    kernels, executor = executors[random.randrange(len(executors))]
    kind = 0.0 if quantized else random.random()
    precision: Precision = "fp32"
    if kind < 0.15:
        case = quantized_network(random)
        precision = "fp16" if random.random() < 0.3 else "fp32"
    elif kind < 0.4:
        case = float_network(random, MOVEMENTS)
    else:
        case = float_network(random, (*ARITHMETIC, *MOVEMENTS, *(CONTROL if kind > 0.9 else ())))
        precision = "fp16" if random.random() < 0.2 else "fp32"
    codes = [*dict.fromkeys(re.findall(r"(\w+)\[", case.describe))]
    cpu_ops = (codes[random.randrange(len(codes))],) if codes and random.random() < 0.08 else ()
    return Network(case, Setting(kernels, executor, precision, cpu_ops))


def integer_network(
    random: Random, chains: int, executors: Sequence[tuple[KernelFamily, ExecutorChoice]] = EXECUTORS
) -> Network:
    """A network of chains of integers; one in five has operators for which LiteRT has no kernels."""
    setting = Setting(*executors[random.randrange(len(executors))], "fp32")
    seeds, more = tuple(random.randrange(1 << 32) for _ in range(chains)), random.random() < 0.2
    return Network(integer_case(seeds, more=more), setting, seeds, more)


def chains_of(network: Network) -> Iterator[Network]:
    """Each chain of a network of integers as a network of its own."""
    for seed in network.chains:
        yield replace(network, case=integer_case([seed], more=network.more), chains=(seed,))


def float_network(random: Random, steps: Sequence[Step], count: int | None = None) -> Case:
    d = Drawing(random)
    for _ in range(random.randint(1, 3)):
        d.add(d.net.input(d.net.normal(d.shape())))
    for _ in range(count or random.randint(2, 12)):
        step = d.one_of(steps)
        if step not in MOVEMENTS:
            d.computes()
        d.add(*step(d))
    given = {id(x) for x in d.tensors[:1]}
    results = [x for x in d.tensors if id(x) not in given]
    chosen = [results[-1], *random.sample(results, min(len(results), random.randint(0, 3)))] if results else d.tensors
    for x in {x.index: x for x in chosen}.values():
        d.net.output(x)
    return d.net.case(EXACT if d.moves_only else MANY_STEPS)
