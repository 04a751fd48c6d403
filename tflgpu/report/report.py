"""A model and what runs each of its operators, as data; :mod:`tflgpu.report.describe` makes it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tflgpu.model.tensor_info import TensorInfo
from tflgpu.report.half_precision import FloatStorage, HalfPrecision, MixedPrecision
from tflgpu.report.table import Table

# Version of ``Report.as_dict`` (docs/tools/inspect.md). It goes up when a key changes its meaning or is removed.
FORMAT = 1

# Different reasons that a warning lists.
REASONS = 8


@dataclass(frozen=True)
class SubgraphInfo:
    """One subgraph of the file; operators for control flow call those after the first."""

    name: str
    operators: int
    tensors: int


@dataclass(frozen=True)
class SignatureInfo:
    """A named entry point and the names of its arguments. subgraph: number of the subgraph that it runs."""

    key: str
    subgraph: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class ModelInfo:
    """Declarations of the file.

    kind: how numbers are stored, in words (``"float32 with float16 weights"``).
    inputs, outputs: of the chosen entry point. constant_bytes: weights and other constants, as stored in the file.
    """

    kind: str
    description: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    signatures: tuple[SignatureInfo, ...]
    subgraphs: tuple[SubgraphInfo, ...]
    constant_bytes: int


@dataclass(frozen=True)
class OperatorReport:
    """One operator of the file.

    Attributes:
        device: ``"device"``, ``"cpu"``, or ``"unsupported"`` if neither tflgpu nor LiteRT knows it.
        kernel: Number of the launch that computes it, None if it needs none.
        reasons: Why it cannot run on the device.
        notes: With ``Numerics(quantized="float")``, what quantization clamps and the device does not.
        inputs: Names of the tensors that it reads.
        outputs: Names of the tensors that it computes.
    """

    index: int
    code: str
    version: int
    device: str
    kernel: int | None
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class FusionReport:
    """Operators that were measured as one kernel and as several. fused: whether the one was faster."""

    operators: tuple[int, ...]
    fused: bool

    def __str__(self) -> str:
        found = "one kernel was" if self.fused else "kernels of their own were"
        return f"tuned: for operators {', '.join(map(str, self.operators))} {found} measured to be faster"


@dataclass(frozen=True)
class Advice:
    """A change that the author of a model could make, and its gain.

    kind: topic of :mod:`tflgpu.report.advice`. operators: indices of the operators that it is about.
    """

    kind: str
    operators: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class FloatProducts:
    """How many kernels multiply floats for a reason, although the weights are integers."""

    reason: str
    kernels: int


@dataclass(frozen=True)
class IntegerReport:
    """How a device computes a quantized model.

    Attributes:
        unit: The instructions by which it multiplies 8-bit integers; None if it has none, or may not use them.
        products: Kernels of matrix products and convolutions that multiply integers.
        float_products: Those that multiply floats, for each reason.
        operators: How many operators have kernels that read or write activations as 8-bit integers.
        conversions: Kernels that read such integers and write floats, or read floats and write such integers.
    """

    unit: str | None
    products: int
    float_products: tuple[FloatProducts, ...]
    operators: int
    conversions: int

    @property
    def lines(self) -> tuple[str, ...]:
        """Sentences about what runs on integers."""
        total = self.products + sum(each.kernels for each in self.float_products)
        by = f" by {self.unit}" if self.products else ""
        return (
            f"{self.products} of {counted(total, 'kernel')} with products multiply 8-bit integers{by}; "
            f"{counted(self.operators, 'operator')} on integers, {counted(self.conversions, 'conversion')}",
            *(f"  {each.kernels} in float: {each.reason}" for each in self.float_products),
        )


@dataclass(frozen=True)
class Report:
    """The model, all its operators and, if it is compiled for a device, the memory that it takes there.

    Attributes:
        partitions: Number of partitions on the device.
        crossing_bytes: Bytes between device and CPU in one run, without the model's own inputs and outputs.
        kernels: Launches of one run, those of loops and branches once each.
        arena_bytes: Memory of activations.
        arena_lower_bound: The largest sum of activations that are alive at once; no arena can be smaller.
        constant_bytes: Weights as the device stores them.
        mixed: With ``Numerics(tolerance=)``, which tensors stay in float, and why.
        fusions: With ``Execution(tuning=)``, what was measured to be faster than what the cost model had chosen.
        integers: Of a quantized model, what is computed with integers, and why the rest is not.
        half: In half precision, how far outputs are from those in float; None if that was not checked.
        floats: In half precision, which tensors stay in float all the same, and why.
    """

    model: ModelInfo
    operators: tuple[OperatorReport, ...]
    partitions: int
    crossing_bytes: int
    advice: tuple[Advice, ...]
    kernels: int | None = None
    arena_bytes: int | None = None
    arena_lower_bound: int | None = None
    constant_bytes: int | None = None
    mixed: MixedPrecision | None = None
    fusions: tuple[FusionReport, ...] = ()
    integers: IntegerReport | None = None
    half: HalfPrecision | None = None
    floats: FloatStorage | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why operators cannot run on the device, one sentence for each obstacle."""
        return tuple(f"operator {o.index} {o.code}: {r}" for o in self.operators for r in o.reasons)

    @property
    def warning(self) -> str:
        """How many operators run on the CPU, which, and why."""
        left = sum(o.device == "cpu" for o in self.operators)
        runs = f"{left} of {counted(len(self.operators), 'operator')} {'runs' if left == 1 else 'run'} on the CPU"
        crossing = f", {size(self.crossing_bytes)} cross to and from the device in each run" * bool(self.crossing_bytes)
        by_code = list(dict.fromkeys(f"{o.code}: {r}" for o in self.operators for r in o.reasons))
        more = [f"and {len(by_code) - REASONS} more reasons; `tflgpu inspect --operators` lists them"] * (
            len(by_code) > REASONS
        )
        return "\n".join((f"{runs}{crossing}:", *(f"  {each}" for each in (*by_code[:REASONS], *more))))

    @property
    def places(self) -> str:
        """How many operators run where, in a sentence."""
        total = len(self.operators)
        counts = {place: sum(o.device == place for o in self.operators) for place in ("device", "cpu", "unsupported")}
        if counts["device"] == total:
            return f"{'all ' * (total > 1)}{counted(total, 'operator')} can run on the device"
        parts = [f"{counts['device']} of {total} operators can run on the device"]
        if counts["device"]:
            parts[0] += f" in {counted(self.partitions, 'partition')}"
        if counts["cpu"]:
            parts.append(f"{counts['cpu']} on the CPU")
        if counts["unsupported"]:
            parts.append(f"{counts['unsupported']} nowhere")
        if self.crossing_bytes:
            parts.append(f"{size(self.crossing_bytes)} cross between the two in each run")
        return ", ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as docs/tools/inspect.md describes it."""
        return {"format": FORMAT} | asdict(self)

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        rows = [
            (
                *(str(o.index), o.code, str(o.version), o.device, "" if o.kernel is None else str(o.kernel)),
                "; ".join((*o.reasons, *o.notes)),
            )
            for o in self.operators
        ]
        headers = ("#", "operator", "version", "where", "kernel", "reasons and notes")
        return Table(self.places, headers, rows, ("#", "version", "kernel"), self._summary[1:]).html()

    def __str__(self) -> str:
        lines = [f"{'#':>4}  {'operator':<24} {'v':>2}  {'where':<12} {'kernel':>6}  reasons and notes"]
        for o in self.operators:
            kernel = "" if o.kernel is None else str(o.kernel)
            reasons = "; ".join((*o.reasons, *o.notes))
            lines.append(f"{o.index:>4}  {o.code:<24} {o.version:>2}  {o.device:<12} {kernel:>6}  {reasons}".rstrip())
        return "\n".join((*lines, *self._summary))

    @property
    def _summary(self) -> tuple[str, ...]:
        """Sentences about the whole model."""
        lines = [self.places]
        if self.kernels is not None:
            lines.append(
                f"{self.kernels} kernels, {self.constant_bytes} bytes of constants, "
                f"{self.arena_bytes} bytes of activations (lower bound {self.arena_lower_bound})"
            )
        lines += self.integers.lines if self.integers else ()
        if self.mixed is not None:
            lines.append(self.mixed.summary)
            lines += (str(kept) for kept in self.mixed.kept)
        lines += self.floats.lines if self.floats else ()
        lines += [self.half.summary] if self.half else []
        lines += map(str, self.fusions)
        return (*lines, *(f"advice: {a.text}" for a in self.advice))


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is 1.

    Args:
        count: Is written before the noun.
        noun: In the singular; the plural ends in s.
    """
    return f"{count} {noun}{'s' * (count != 1)}"


def size(count: int) -> str:
    """Return a number of bytes as text, in decimal units.

    Args:
        count: Bytes.
    """
    if count < 1000:
        return counted(count, "byte")
    return f"{count / 1e3:.1f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"
