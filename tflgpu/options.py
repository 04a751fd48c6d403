"""The options of a compilation: five that concern most users, and groups of others.

Each option is declared once, with its type, default, check and help; the command line, the options of a delegate and
docs/reference/options.md have them from here. What an option may be and what it does in detail is in the docstring of
its class.
"""

# Without `from __future__ import annotations`: choices and groups are read from the types of the fields.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from reprlib import repr as shortened
from typing import Any, Literal

from tflgpu.checking.old_names import accept_old_names
from tflgpu.checking.option_declarations import Group, check_fields, grouped, option
from tflgpu.checking.option_fields import (
    GREATEST_SIZE,
    GREATEST_TOKEN,
    WholeNumber,
    check_bound,
    check_calibration,
    check_device,
    check_digests,
    check_hexadecimal,
    check_operators,
    check_outputs,
    check_places,
    check_scalings,
    check_seconds,
    check_shapes,
    check_switch,
    check_text,
    check_tolerance,
)

Precision = Literal["auto", "fp32", "fp16", "fp16_fast"]
ExecutorChoice = Literal["auto", "launch", "persistent", "claiming"]
KernelFamily = Literal["auto", "cpu", "gpu"]
IntegerProducts = Literal["auto", "off"]
Quantized = Literal["fake_quantize", "float"]
Fallback = Literal["auto", "forbid"]
TuningEffort = Literal["none", "fast", "exhaustive"]
CostModelChoice = Literal["auto", "measured", "built-in"]
HalfCheck = Literal["auto", "always", "off"]
StartChoice = Literal["compiled", "now"]
CacheMode = Literal["readwrite", "read", "require", "off"]


@dataclass(frozen=True, kw_only=True)
class Shapes(Group, place="shapes"):
    """Shapes of inputs that the model is planned for, in place of the file's.

    :meth:`CompiledModel.run` also plans anew for inputs whose free dimensions (-1 in the file) have other sizes.
    Another number of independent rows runs in pieces by what is compiled, until that has taken as long as compiling.

    Attributes:
        batch: size of the first axis of every input.
        inputs: shapes of inputs by name; they win over ``batch``.
    """

    batch: int | None = option(
        None,
        "Size of the first axis of every input.",
        WholeNumber(1, GREATEST_SIZE),
        command=True,
        absent="the file's",
    )
    inputs: Mapping[str, Sequence[int]] | None = option(
        None, "Shapes of inputs by name.", check_shapes, flat="input_shapes", absent="the file's", hash=False
    )


@dataclass(frozen=True, kw_only=True)
class Interface(Group, place="interface"):
    """Which of the model's tensors a caller gives and gets, and in which form.

    Attributes:
        signature: key of the signature to run; by default the first one, or the main subgraph.
        outputs: the tensors to return instead of the model's own outputs, by name or by index in the file; intermediate
            ones, too. An index that has no name of its own is returned as ``"NAME_INDEX"``.
        uint8_inputs: float inputs that callers give as bytes, such as camera frames: ``{name: (mean, std)}``. The
            device computes ``(byte - mean) / std``, so that only a quarter of the bytes goes to the device.
        bound: outputs that are inputs of the next run: ``{output: input}``. They stay on the device as states, zeros at
            first, and are neither given nor returned; :meth:`CompiledModel.session` has several sets of them. For
            models that run on the device as one piece; not for quantized tensors and open shapes.
    """

    signature: str | None = option(
        None, "Key of the entry point.", check_text, command=True, metavar="KEY", absent="the first"
    )
    outputs: Sequence[str | int] | None = option(
        None,
        "Tensors to compute, intermediate ones, too.",
        check_outputs,
        command="Give it several times for several.",
        metavar="NAME",
        absent="the model's outputs",
    )
    uint8_inputs: Mapping[str, tuple[float, float]] | None = option(
        None, "Float inputs that are given as bytes.", check_scalings, absent="none", hash=False
    )
    bound: Mapping[str, str] | None = option(
        None, "Outputs that are inputs of the next run.", check_bound, absent="none", hash=False
    )


@dataclass(frozen=True, kw_only=True)
class Numerics(Group, place="numerics"):
    """How near results are to those of fp32 and of LiteRT.

    Attributes:
        tolerance: with precision ``"auto"``, largest error of an output beside its answer in fp32, relative to its
            range: 0.01 is one percent. Tensors are stored in half but for the few that would take an output further
            than that on ``calibration``; ``report.mixed`` names them. Integers that are no quantized numbers, such as
            the places of an ARG_MAX, are left out. Takes a minute at most, once: the cache keeps the result.
        calibration: inputs to try for ``tolerance`` and for ``half_check``, a list of what :meth:`CompiledModel.run`
            takes; by default a few pictures or signals and some noise, the same ones each time, scaled as the file
            says. Better are inputs such as the model will get.
        quantized: ``"fake_quantize"`` rounds each quantized activation to what its integer type can hold, as the CPU's
            integer kernels do. Of a model of dynamic range (int8 weights, float activations) it also quantizes rows of
            activations at run time, as LiteRT does, where a CPU's integer unit makes a layer much faster; elsewhere
            such a model is computed in float. ``"float"`` does not round. It clamps activations to the range of their
            integers, which is what is left of a ReLU6 in many files; ``report.operators[].notes`` name those that it
            does not clamp.
        checks: :meth:`CompiledModel.run` raises ValueError, which names the operator, for indices out of range,
            divisors of zero and negative exponents of integers, where LiteRT reports an error. Without it such an index
            becomes the nearest in range (docs/reference/numerics.md). Each operator to check costs a kernel or two.
        half_check: whether a model in half precision is compared with one in float, on generated inputs or those of
            ``calibration``, when it is compiled for the first time, and for other sizes of free axes. Where an output
            is off by more than 0.5% of its range, or a value was capped at 65504, more tensors are kept in float
            (``report.mixed`` names them); if that does not do, there is a PrecisionWarning that names the first such
            tensor. ``"auto"`` does so where the cache keeps the result and LiteRT (the extra ``fallback``) is
            installed, which runs in a process of its own while the device's compiler works; ``"always"`` also without
            it, by a model in fp32, and for models of integers; ``"off"`` compares nothing. ``report.half`` has the
            result.
    """

    tolerance: float | None = option(
        None,
        "With precision auto: store in half what keeps every output this near, as a part of its range.",
        check_tolerance,
        command=True,
        metavar="PART",
        absent="none",
    )
    calibration: Sequence[Any] | None = option(
        None,
        "Inputs to try for the tolerance and the check of half precision.",
        check_calibration,
        command="Images, .npy or .npz files, each for all inputs.",
        metavar="FOLDER",
        absent="generated inputs",
    )
    quantized: Quantized = option(
        "fake_quantize",
        "Round quantized activations as integers are, or only clamp them.",
        old_values={"simulate": "fake_quantize"},
    )
    checks: bool = option(
        False,
        "Fail for indices out of range and for divisors of zero, as LiteRT does.",
        check_switch,
        command=True,
    )
    half_check: HalfCheck = option("auto", "Compare a model in half precision with float, at its first compilation.")


@dataclass(frozen=True, kw_only=True)
class Execution(Group, place="execution"):
    """How the kernels are chosen, and how the device runs them: a matter of speed.

    Attributes:
        executor: ``"launch"`` runs each kernel by a launch of its own; ``"persistent"`` runs all kernels in one launch
            with barriers between dependent kernels, and needs work-groups that all run at the same time and one buffer
            that has all of the model's memory, or it is ``"launch"``, with a DeviceWarning; ``"claiming"`` runs all
            kernels in one launch, too, whose work-groups share out the work as they go, and needs a CPU with the atomic
            operations of OpenCL C 2.0. ``"auto"`` is ``"claiming"`` on such CPUs. On NVIDIA's GPUs, where a launch
            costs more than a small kernel, it is the faster one of the other two: the sizes of the kernels decide, or a
            measurement, which is kept with the model. Elsewhere it is ``"launch"``. On CPUs a persistent kernel has a
            single work-group and is slow: it is for tests only.
        tuning: how parameters of kernels, such as tile sizes, are chosen: ``"none"`` takes the best by a cost model of
            the device, ``"fast"`` measures the few best by that model, ``"exhaustive"`` measures all. Both also measure
            operators as one kernel and as several; ``report.fusions`` names what the model had chosen otherwise.
            Measurements are kept in the cache, also for other models with equal layers.
        cost_model: source of the cost model's numbers, by which plans for GPUs choose tiles and fusions. ``"auto"``
            (the environment variable ``TFLGPU_COST_MODEL`` if set) takes what the cache has of the device, else what
            tflgpu brings along (tflgpu/measure/known_devices.json); any other GPU is measured for a second at its first
            compilation with a cache. ``"measured"`` measures any device if need be; ``"built-in"`` takes numbers of
            another GPU.
        kernels: family of kernels; ``"auto"`` goes by the device's type. The other family also runs, but slower: it is
            useful for comparisons, and to test GPU kernels without a GPU.
        integer_products: ``"auto"`` multiplies the 8-bit integers of quantized models by instructions that a CPU has
            for them (``integer_unit`` of ``tflgpu devices``), if their sums were right when they were first tried with
            its driver; ``"off"`` multiplies floats, as on every other device. Answers are within a step of each other.
        start: ``"compiled"`` returns a model when its kernels are compiled. With ``"now"``, and if the cache does not
            have the model, LiteRT (the extra ``fallback``) runs it on the CPU at once, without a trial process, while a
            thread compiles; the kernels take over between two calls, with the resource variables as they are.
            ``CompiledModel.is_ready`` and ``wait_ready`` tell when. Bits of the answers change then, within what the
            precision promises. A model that LiteRT refuses, with variable tensors (those of an LSTM) or with bound
            states starts compiled. Errors of compiling come from ``wait_ready``. A process waits at its end until the
            compiler is done.
    """

    executor: ExecutorChoice = option("auto", "Launches, or one kernel that runs all of them.", command=True)
    tuning: TuningEffort = option(
        "none", "Measure no, few or all candidates for the parameters of kernels.", command=True
    )
    cost_model: CostModelChoice = option("auto", "Where the numbers of the cost model are from.")
    kernels: KernelFamily = option("auto", "Family of kernels; auto goes by the type of the device.")
    integer_products: IntegerProducts = option(
        "auto", "Multiply 8-bit integers of quantized models by a CPU's own instructions, or as floats."
    )
    start: StartChoice = option("compiled", "Run the model when it is compiled, or by LiteRT until then.", command=True)


@dataclass(frozen=True, kw_only=True)
class CpuPart(Group, place="cpu_part"):
    """The part of a model that LiteRT's interpreter runs on the CPU (the extra ``fallback``).

    Attributes:
        operators: operators to leave to the CPU although the device could run them: codes (``"SOFTMAX"``), indices as
            `tflgpu inspect` prints them, ranges of indices (``range(60, 66)``), or ``"*"`` for all.
        trial_timeout: seconds. What LiteRT has not run before, it prepares and runs first in a trial: a process of its
            own, which may take this long for each part of the model and 4 GiB of memory, and as much again for large
            parts; that it runs is kept in the cache. None: no trial, so that neither time nor memory has a limit.
    """

    operators: Sequence[str | int | range] = option(
        (),
        "Operators to leave to LiteRT's CPU.",
        check_operators,
        flat="cpu_ops",
        command="SOFTMAX, 12 or 60-65, by commas.",
        metavar="OPS",
        absent="none",
    )
    trial_timeout: float | None = option(
        60.0,
        "Seconds for the first run of what LiteRT has not run before, in a process of its own; None: no such process.",
        check_seconds,
        flat="cpu_timeout",
    )


@dataclass(frozen=True, kw_only=True)
class CacheFiles(Group, place="cache_files"):
    """Where the disk cache is, how much it may take, and which of its files are accepted.

    Attributes:
        path: the cache's directory, or a sequence of directories and bundles: the first one with the model is read, the
            first writable directory is written. ``~`` is the home directory. By default the environment variable
            ``TFLGPU_CACHE_DIR`` or the platform's cache directory.
        limit: bytes that the directory may take; the entries unused for longest are deleted first.
        model_token: number by which the cache finds the model, by default the Fingerprint64 of its content hash. With
            a token, a model file whose size and times are unchanged is not read at all, unless it has free dimensions.
        bundle_key: Ed25519 public key, 64 hexadecimal digits, that every bundle in ``path`` must be signed with, as
            ``tflgpu precompile-cache --sign`` does (the extra ``sign``). BundleError for any other.
        bundle_digest: SHA-256 that every bundle must have, 64 hexadecimal digits, or a sequence of allowed ones.
    """

    path: str | PathLike[str] | Sequence[str | PathLike[str]] | None = option(
        None,
        "Directory or bundle of compiled models; several are searched in this order.",
        check_places,
        flat="cache_dir",
        command=True,
        metavar="PATH",
        absent="TFLGPU_CACHE_DIR, or the platform's cache directory",
    )
    limit: int = option(
        2 << 30, "Bytes that the directory may take.", WholeNumber(1, GREATEST_TOKEN), flat="cache_limit"
    )
    model_token: int | None = option(
        None,
        "Number by which the cache finds the model.",
        WholeNumber(0, GREATEST_TOKEN),
        absent="Fingerprint64 of its content hash",
    )
    bundle_key: str | None = option(
        None, "Public key that every bundle must be signed with.", check_hexadecimal, absent="none"
    )
    bundle_digest: str | Sequence[str] | None = option(
        None, "SHA-256 that every bundle must have, or a list of allowed ones.", check_digests, absent="any"
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for :func:`tflgpu.compile`. An object is immutable, so it can serve many models.

    Attributes:
        precision: storage of activations and weights on the device. ``"fp32"``; ``"fp16"`` stores half precision and
            computes in float, and needs no device extension; ``"fp16_fast"`` also multiplies in half, and raises
            DeviceError on a device without ``cl_khr_fp16``; ``"auto"`` is fp16 on GPUs and fp32 elsewhere, and with
            ``numerics.tolerance`` whatever keeps it.
        device: ``"auto"`` (the environment variable ``TFLGPU_DEVICE`` if set, else the best device found), an index of
            :func:`tflgpu.devices`, a type (``"cpu"``, ``"gpu"``: the best of it), or a part of a device's or platform's
            name.
        threads: the number of cores to use of a device that is a CPU, by default all of them; a greater number than
            there are is all of them, too. Models that are opened one after another get different cores where there are
            enough. A runtime that cannot partition its device uses all cores, with a DeviceWarning. Without effect on
            other devices. Kernels are planned for this number of cores.
        fallback: what to do with operators that cannot run on the device: ``"auto"`` leaves them to LiteRT's
            interpreter on the CPU (the extra ``fallback``), with a FallbackWarning; ``"forbid"`` raises
            UnsupportedError with every reason.
        cache: use of the disk cache. ``"readwrite"`` reads it and stores what was compiled; ``"read"`` stores nothing;
            ``"require"`` raises CacheMissError instead of compiling; ``"off"`` neither reads nor stores.
        shapes: other shapes of inputs than the file's.
        interface: signature, other outputs, inputs given as bytes.
        numerics: a tolerance, quantized models, checks of indices and divisors.
        execution: executor, tuning, cost model, family of kernels.
        cpu_part: what LiteRT's interpreter runs on the CPU.
        cache_files: where the cache is, and which bundles are accepted.
    """

    precision: Precision = option(
        "auto",
        "Storage on the device; auto is fp16 on GPUs, fp32 elsewhere; fp16_fast also multiplies in half.",
        command=True,
    )
    device: str | int = option(
        "auto",
        "cpu, gpu, index of `tflgpu devices`, or part of a device's or platform's name.",
        check_device,
        command=True,
        metavar="NAME",
    )
    threads: int | None = option(
        None, "Number of a CPU's cores to use.", WholeNumber(1, GREATEST_SIZE), absent="all of them"
    )
    fallback: Fallback = option("auto", "Leave what cannot run on the device to LiteRT's CPU, or refuse the model.")
    cache: CacheMode = option("readwrite", "Use of the cache; with require nothing is compiled.", command=True)
    shapes: Shapes = Shapes()
    interface: Interface = Interface()
    numerics: Numerics = Numerics()
    execution: Execution = Execution()
    cpu_part: CpuPart = CpuPart()
    cache_files: CacheFiles = CacheFiles()

    def __post_init__(self) -> None:
        """Check every field. Raises TypeError or ValueError, which names it and says what was expected."""
        check_fields(self)
        if self.numerics.tolerance is not None and self.precision != "auto":
            raise ValueError(
                f"Options.numerics.tolerance chooses the precision; {self.precision!r} was given, too; leave out "
                "one of them"
            )


accept_old_names(Options)


def options_of(flat: Mapping[str, Any]) -> Options:
    """Return options by their flat names, as the command line and a delegate have them: ``{"batch": 4}``.

    Args:
        flat: Values by the names of fields of all groups; a name belongs to one group only.

    Raises:
        KeyError: There is no option of a name.
        TypeError: A value is of a wrong type.
        ValueError: A value is of the right type and not allowed.
    """
    return Options(**grouped(Options, flat))


def check_options(options: object) -> Options:
    """Return the options that a caller gave.

    Args:
        options: An object of :class:`Options`, or None for the default ones.

    Raises:
        TypeError: It is neither.
    """
    if options is None:
        return Options()
    if not isinstance(options, Options):
        example = "tflgpu.Options(precision='fp32')"
        raise TypeError(f"options is {shortened(options)}; an object was expected, such as {example}")
    return options
