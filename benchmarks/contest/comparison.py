"""A comparison of tflgpu with its peers, on one machine in one run, as rows of JSON.

A MODEL is a .tflite file, which runs at its own batch size, or a name of benchmarks.zoo, which runs at every --batch.

Metrics: ``device`` is the sum of all kernels by the device's clock; ``launch`` is from the launch to the end with all
data on the device; ``host`` is from host array to host array, with the same array every time. tflgpu runs with the
executor that it chooses. Its peers include each of its executors and its other calls: of metric ``host`` a new array
for every run, and ``run_many``; of metric ``launch`` ``run`` with arrays on the device; of metric ``device``
``enqueue``, as the time from one inference of a stream to the next. The contenders of a metric take turns; medians are
compared.

Every contender is a process (worker.py). Those of one model are prepared, --jobs at a time, then measured one case
after another while nothing else runs. A peer that fails gives a row with the reason in ``skipped``.

max_error and peer_max_error are relative to the output's range, against LiteRT's CPU interpreter, on random inputs;
null for networks with other weights. The script fails if tflgpu fails, or if its error is larger than the precision
allows.

roofline, of metric ``device``: the share of tflgpu's time that its kernels need for their bytes and operations at the
ceilings measured in the same run (ceilings.py). The peer ``launch-cost`` is a lower bound for the launch executor: as
many empty launches, and the device time of its kernels.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from benchmarks import choices
from benchmarks.contest.case import TOLERANCE, Case
from benchmarks.contest.ceilings import Ceilings, keep_costs, measure_ceilings
from benchmarks.contest.contender import Metric
from benchmarks.contest.turns import Result, measure, prepare
from benchmarks.contest.worker import Worker
from benchmarks.engines.executors import LAUNCHES, OWN
from benchmarks.publish import PACKAGES, publish
from tflgpu.cli.own_processes import in_own_process
from tflgpu.options import Precision
from tflgpu.runtime.opencl.devices import choose


@dataclass(frozen=True)
class Peers:
    """engines: a name for --peers -> its module in benchmarks.engines, in the order of preparation: the slowest first.

    packages: whose versions are noted.
    """

    engines: Mapping[str, str]
    packages: tuple[str, ...]


def main(description: str, peers: Peers, *, precisions: str, jobs: int) -> None:
    """The script of one kind of device. precisions, jobs: what holds unless the command line says otherwise."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--batch", default="1")
    parser.add_argument("--precision", type=choices.precisions, default=precisions)
    parser.add_argument("--peers", default=",".join(peers.engines))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=jobs)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    engines = [module for name, module in peers.engines.items() if name in arguments.peers.split(",")]
    faults: list[str] = []
    with TemporaryDirectory(prefix="tflgpu-benchmark-") as cache:
        ceilings = in_own_process(measure_ceilings, device.index).value
        in_own_process(keep_costs, device.index, cache)
        settings = engines, arguments.rounds, arguments.jobs, ceilings, faults
        cases = (
            cases_of(model, arguments.batch, arguments.precision, device.index, cache) for model in arguments.models
        )
        publish(
            chain.from_iterable(measured(own, *settings) for own in cases),
            device,
            arguments.out,
            packages=(*PACKAGES, *(p for p in peers.packages if find_spec(p))),
            ceilings=asdict(ceilings),
        )
    if faults:
        sys.exit("\n".join(faults))


def cases_of(model: str, batches: str, precisions: Sequence[Precision], device: int, cache: str) -> list[Case]:
    return [
        Case(model, int(batch), precision, device, cache)
        for batch in (["1"] if model.endswith(".tflite") else batches.split(","))
        for precision in precisions
    ]


def workers_of(cases: Sequence[Case], engines: Sequence[str]) -> list[Worker]:
    workers = (Worker(f"benchmarks.engines.{engine}", case) for engine in [*engines, "executors"] for case in cases)
    return [worker for worker in workers if import_module(worker.module).covers(worker.case)]


def measured(
    cases: Sequence[Case], engines: Sequence[str], rounds: int, jobs: int, ceilings: Ceilings, faults: list[str]
) -> Iterator[Mapping[str, object]]:
    """The rows of one model, one case after another. Faults of tflgpu are appended to ``faults``."""
    with ExitStack() as stack:
        workers = workers_of(cases, engines)
        for worker in workers:
            stack.callback(worker.close)
        failed = prepare(workers, jobs)
        for case in cases:
            results = measure([worker for worker in workers if worker.case == case], failed, rounds)
            named = ((f"{case.model}, batch {case.batch}, {case.precision}: {r.name}", r) for r in results)
            found = dict.fromkeys((name, fault(r, case.precision)) for name, r in named)
            faults += [f"{name}: {what}" for name, what in found if what is not None]
            yield from rows(case, results, ceilings)


def rows(case: Case, results: Sequence[Result], ceilings: Ceilings) -> Iterator[dict[str, object]]:
    """A row for each peer and metric, with tflgpu's time by the same clock."""
    found = {(r.name, r.metric): r for r in results}
    for metric in get_args(Metric):
        # If tflgpu's process has failed, there is only one result.
        own = found.get((OWN, metric)) or Result(OWN, metric, reason=found[OWN, "device"].reason)
        ideal = 1e3 * ceilings.attainable(own.work, case.precision) if own.work else None
        peers = [r for r in results if r.metric == metric and r.name != OWN]
        yield from (row(case, own, peer, ideal) for peer in peers or [Result("", metric)])
    launch, device = (found.get((LAUNCHES, metric)) for metric in ("launch", "device"))
    if launch and device and device.ms and device.work:
        expected = len(device.work) * ceilings.launch_seconds + device.ms / 1e3
        yield row(case, launch, Result("launch-cost", "launch", [expected])) | {"kernels": len(device.work)}


def row(case: Case, own: Result, peer: Result, ideal_ms: float | None = None) -> dict[str, object]:
    reasons = {"failed": own.reason, "skipped": peer.reason}
    return {
        "model": Path(case.model).stem,
        "batch": case.batch,
        "precision": case.precision,
        "metric": own.metric,
        "engine": own.name,
        "tflgpu_ms": rounded(own.ms),
        "peer": peer.name,
        "peer_ms": rounded(peer.ms),
        "ratio": rounded(own.ms / peer.ms) if own.ms and peer.ms else None,
        "max_error": own.error,
        "peer_max_error": peer.error,
        "roofline": rounded(ideal_ms / own.ms) if ideal_ms and own.ms else None,
    } | {key: reason for key, reason in reasons.items() if reason is not None}


def rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)


def fault(result: Result, precision: str) -> str | None:
    """The fault of a result of tflgpu; None if there is none, or for other engines."""
    if result.name == OWN and result.reason is not None:
        return result.reason
    if result.name.startswith(OWN) and result.error is not None and not result.error <= TOLERANCE[precision]:
        return f"an error of {result.error:.1e}, where {TOLERANCE[precision]:.0e} is allowed"
    return None
