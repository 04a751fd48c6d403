"""A model in one setting, compiled and run. Needs nothing but tflgpu and what it depends on."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Any

from numpy.typing import NDArray

import tflgpu
from tests.safety.drawn.device_arrays import run_on_device_arrays
from tests.safety.drawn.poison import NANS, poison
from tests.safety.sandbox import Fate
from tflgpu.errors import DeviceWarning, FallbackWarning
from tflgpu.options import ExecutorChoice, Fallback, KernelFamily, Precision, options_of

Array = NDArray[Any]

RANDOM_WORD = 0x3DCC4D2B  # about 0.1 as a float; as halves 1.4 and 20.7


@dataclass(frozen=True)
class Setting:
    """How a network is compiled. cpu_ops: operators that LiteRT computes amid the others."""

    kernels: KernelFamily
    executor: ExecutorChoice
    precision: Precision
    cpu_ops: tuple[str, ...] = ()
    fallback: Fallback = "auto"


# The persistent executor has a single work-group on a CPU: seldom, as it is slow.
EXECUTORS: Sequence[tuple[KernelFamily, ExecutorChoice]] = (
    *[("cpu", "claiming"), ("cpu", "launch"), ("gpu", "launch")] * 3,
    ("gpu", "persistent"),
    ("cpu", "persistent"),
)
ON_GPUS: Sequence[tuple[KernelFamily, ExecutorChoice]] = (("gpu", "launch"), ("gpu", "persistent"))


@dataclass(frozen=True)
class Job:
    model: bytes
    inputs: Sequence[Array]
    setting: Setting
    device: str


def run(job: Job) -> list[list[Array]]:
    """The outputs of runs on memory of NaN, then of numbers, and of one whose inputs and outputs are device arrays."""
    s = job.setting
    own = {"device": job.device, "cache": "off", "cpu_timeout": None}
    options = options_of(own | {f.name: getattr(s, f.name) for f in fields(s)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        warnings.simplefilter("ignore", DeviceWarning)
        with tflgpu.compile(job.model, options) as model:
            results = []
            for word in (NANS, RANDOM_WORD):
                poison(model, word)
                results.append([*model.run(list(job.inputs)).values()])
            poison(model, NANS)
            results.append(run_on_device_arrays(model, job.inputs, NANS, Random(len(job.model))))
            return results


def cause_of(fate: Fate) -> str:
    places = re.findall(r'File ".*/(tflgpu/[^"]*)", line (\d+)', fate.details)
    return f"{fate.kind}: {fate.text} at {':'.join(places[-1]) if places else 'an unknown place'}"
