"""Random models with variables: several signatures over them, and calls in every manner that there is.

LiteRT's interpreter is the judge, whose signatures share variables. What was never written is zeros there, too: its
first call assigns them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tests.fallback.cpu_operators import strings
from tests.frontend.stateful_models import assign, handle, read
from tests.safety.drawn.jobs import EXECUTORS, cause_of
from tests.safety.drawn.judge import Verdict
from tests.safety.sandbox import Sandbox
from tests.support.compiled_before import compiled_once, kept_programs
from tests.support.models import Builder
from tests.support.unoptimized import compile_without_optimization
from tflgpu.model.tensor_info import Quantization
from tflgpu.options import CpuPart, Execution, ExecutorChoice, KernelFamily, Options, Precision, StartChoice

Array = NDArray[Any]
Way = Literal["run", "enqueue", "pool", "thread", "session", "reset"]
Interface = Literal["compile", "Interpreter", "CompiledModel"]

_Step = Callable[[Builder, "Variable", list[int], dict[str, "Variable"]], int | None]

SECONDS = 300.0  # five signatures are compiled, perhaps on a busy machine
WAYS: Sequence[Way] = ("run", "run", "enqueue", "enqueue", "pool", "thread", "session", "reset")
SHAPES = ((1, 4), (2, 3, 5), (1, 3, 2, 6), (7,), (1,), (3, 8))
QUANTIZATION = Quantization([0.05], [-3])
TOLERANCE: Mapping[Precision, float] = {"fp32": 2e-5, "fp16": 6e-2, "fp16_fast": 6e-2}


@dataclass(frozen=True)
class Variable:
    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    is_quantized: bool = False

    @property
    def form(self) -> dict[str, Any]:
        return {"quantization": QUANTIZATION} if self.is_quantized else {}


@dataclass(frozen=True)
class Call:
    way: Way
    signature: str = ""
    inputs: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Stateful:
    model: bytes
    variables: tuple[Variable, ...]
    calls: tuple[Call, ...]
    interface: Interface
    kernels: KernelFamily
    executor: ExecutorChoice
    precision: Precision
    start: StartChoice
    describe: str

    def __str__(self) -> str:
        ways = ", ".join(f"{call.way} {call.signature}".strip() for call in self.calls)
        return f"{self.interface} {self.kernels} {self.executor} {self.precision} {self.start}: {self.describe}: {ways}"


def stateful(random: Random, executors: Sequence[tuple[KernelFamily, ExecutorChoice]] = EXECUTORS) -> Stateful:
    """A model and calls of its signatures."""
    kernels, executor = executors[random.randrange(len(executors))]
    drawing = _Drawing(random)
    model = drawing.model()
    interface: Interface = random.choices(("compile", "Interpreter", "CompiledModel"), (6, 2, 1))[0]
    precision: Precision = "fp16" if random.random() < 0.15 else "fp32"
    calls = tuple(drawing.calls(interface))
    start: StartChoice = "now" if random.random() < 0.15 else "compiled"
    rest = interface, kernels, executor, precision, start, "; ".join(drawing.log)
    return Stateful(model, tuple(drawing.variables), calls, *rest)


class _Drawing:
    def __init__(self, random: Random) -> None:
        self._random, self._rng = random, np.random.default_rng(random.getrandbits(32))
        self.log: list[str] = []
        kinds = random.choices(
            (("float32", False), ("int32", False), ("bool", False), ("int8", True)), (12, 2, 1, 2), k=3
        )
        shapes = random.sample(SHAPES, 2)
        self.variables = [
            Variable(f"v{n}", random.choice(shapes), *kind) for n, kind in enumerate(kinds[: random.randint(1, 3)])
        ]
        self._main = Builder()
        self._signatures: dict[str, dict[str, Variable]] = {}  # inputs by key

    @property
    def _steps(self) -> dict[_Step, float]:
        """The steps of a body, and how often each is drawn."""
        return {
            self._read: 6,
            self._assign: 5,
            self._compute: 6,
            self._branch: 3,
            self._loop: 2,
            self._on_cpu: 1,
            self._initialize: 0.5,
            self._table: 0.5,
        }

    def model(self) -> bytes:
        main, random = self._main, self._random
        self._once = self._first_values() if random.random() < 0.4 else None
        for key in ("save", "restore", *"abc"[: random.randint(1, 3)]):
            self.log.append(key)
            builder = Builder()
            inputs: dict[str, Variable] = {}
            outputs = getattr(self, f"_{key}" if len(key) > 1 else "_body")(builder, inputs)
            self._signatures[key] = inputs
            main.subgraph(builder, outputs, signature=key)
        given = main.input((1, 2), name="plain")
        self._signatures["main"] = {"plain": Variable("", (1, 2))}
        return main.finish([main.add("NEG", [given], name="negative")], signature="main")

    def _first_values(self) -> int:
        first = Builder()
        for variable in self.variables:
            if self._random.random() < 0.7:
                assign(first, variable.name, first.constant(self._value(variable), **variable.form))
                self.log.append(f"{variable.name} has a first value")
        return self._main.subgraph(first)

    def _value(self, variable: Variable) -> Array:
        if variable.dtype == "float32":
            return self._rng.normal(size=variable.shape).astype(np.float32)
        low, high = (0, 2) if variable.dtype == "bool" else (-90, 90)
        return self._rng.integers(low, high, variable.shape).astype(variable.dtype)

    def _begin(self, builder: Builder, always: bool = False) -> None:
        if self._once is not None and (always or self._random.random() < 0.7):
            builder.op("CALL_ONCE", [], [], {"init_subgraph_index": self._once})
            self.log.append("once")

    def _save(self, builder: Builder, inputs: dict[str, Variable]) -> list[int]:
        handles = [handle(builder, v.name) for v in self.variables]
        return [
            builder.add("READ_VARIABLE", [h], v.shape, v.dtype, name=f"{v.name}_value", **v.form)
            for h, v in zip(handles, self.variables, strict=True)
        ]

    def _restore(self, builder: Builder, inputs: dict[str, Variable]) -> list[int]:
        for v in self.variables:
            assign(builder, v.name, self._input(builder, v, inputs, f"{v.name}_value"))
        return [builder.add("NEG", [builder.input((1,), name="unused")], name="done")]

    def _input(self, builder: Builder, v: Variable, inputs: dict[str, Variable], name: str) -> int:
        inputs[name] = v
        return builder.input(v.shape, v.dtype, name=name, **v.form)

    def _body(self, builder: Builder, inputs: dict[str, Variable]) -> list[int]:
        """Operators on tensors of the variables' forms."""
        self._begin(builder)
        tensors: dict[Variable, list[int]] = {}
        for n, v in enumerate(self.variables):
            like = Variable("", v.shape, v.dtype, v.is_quantized)
            if like not in tensors:
                tensors[like] = [self._input(builder, v, inputs, f"x{n}")]
        carry = builder.input((1, 2), name="carry") if self._random.random() < 0.4 else None
        computed: list[int] = []
        for _ in range(self._random.randint(1, 8)):
            v = self._random.choice(self.variables)
            known = tensors[Variable("", v.shape, v.dtype, v.is_quantized)]
            step = self._random.choices([*self._steps], [*self._steps.values()])[0]
            made = step(builder, v, known, inputs)
            if made is not None:
                known.append(made)
                computed.append(made)
        if not computed:
            computed = [self._read(builder, self.variables[0], [], inputs)]
        outputs = list(dict.fromkeys(self._random.sample(computed, min(len(computed), 3))))
        if carry is not None:
            inputs["carry"] = Variable("", (1, 2))
            outputs.append(builder.add("COS", [carry], name="carry_out"))
        return outputs

    def _read(self, builder: Builder, v: Variable, known: list[int], inputs: dict[str, Variable]) -> int:
        self.log.append(f"read {v.name}")
        return read(builder, v.name, v.shape, v.dtype, **v.form)

    def _assign(self, builder: Builder, v: Variable, known: list[int], inputs: dict[str, Variable]) -> None:
        self.log.append(f"assign {v.name}")
        if self._random.random() < 0.15:
            assign(builder, v.name, builder.constant(self._value(v), **v.form))
        else:
            assign(builder, v.name, self._random.choice(known))

    def _compute(self, builder: Builder, v: Variable, known: list[int], inputs: dict[str, Variable]) -> int:
        x, y = self._random.choice(known), self._random.choice(known)
        self.log.append(f"compute on {v.dtype}")
        if v.dtype == "bool":
            return builder.add("LOGICAL_AND", [x, builder.add("LOGICAL_NOT", [y], v.shape, "bool")], v.shape, "bool")
        if v.dtype != "float32":
            return builder.add("MAXIMUM", [x, y], v.shape, v.dtype, **v.form)
        match self._random.randrange(4):
            case 0:
                return builder.add("TANH", [x])
            case 1:
                return builder.add("ADD", [x, y])
            case 2:
                row = builder.constant(self._rng.normal(size=v.shape[-1:]).astype(np.float32))
                return builder.add("MUL", [x, row])
        part = (1, *v.shape[1:])
        update = builder.constant(self._rng.normal(size=part).astype(np.float32))
        place = builder.ints([self._random.randrange(v.shape[0]), *([0] * (len(part) - 1))])
        return builder.add("DYNAMIC_UPDATE_SLICE", [x, update, place], v.shape)

    def _on_cpu(self, builder: Builder, v: Variable, known: list[int], inputs: dict[str, Variable]) -> int | None:
        """LiteRT runs it alone, or an operator of the device amid those of the CPU."""
        if v.dtype != "float32":
            return None
        self.log.append("on the CPU")
        return builder.without_kernel(self._random.choice(known))

    def _initialize(self, builder: Builder, v: Variable, known: list[int], inputs: dict[str, Variable]) -> None:
        """CALL_ONCE after operators that may have used what it initializes."""
        if self._once is not None:
            self._begin(builder, always=True)

    def _table(self, builder: Builder, v: Variable, known: list[int], inputs: dict[str, Variable]) -> int | None:
        """Fill one of two hash tables, or none, and compute with its size."""
        if v.dtype != "float32":
            return None
        number, size = 100 + self._random.randrange(2), self._random.randrange(3)  # LiteRT numbers variables from 0 on
        self.log.append(f"{size} keys in table {number}")
        table = builder.tensor((), "resource")
        builder.op("HASHTABLE", [], [table], {"table_id": number, "key_dtype": "INT64", "value_dtype": "STRING"})
        if size:
            keys = builder.constant(np.arange(size, dtype=np.int64))
            builder.op("HASHTABLE_IMPORT", [table, keys, strings(builder, *(b"word",) * size)], [])
        found = builder.add("HASHTABLE_SIZE", [table], (1,), "int64")
        number_found = builder.add("CAST", [found], (1,), "float32", in_data_type="INT64", out_data_type="FLOAT32")
        return builder.add("ADD", [self._random.choice(known), number_found], v.shape)

    def _inner(self, v: Variable, body: Builder, x: int, handle_of: int | None) -> int:
        """Let a branch or a loop use a variable: at least one of reading and assigning it."""
        kind = self._random.randrange(3)
        variable = handle(body, v.name) if handle_of is None else handle_of
        self.log.append(f"{('read', 'assign', 'both')[kind]} {v.name}")
        y = x
        if kind != 1:
            y = body.add("READ_VARIABLE", [variable], v.shape, v.dtype, **v.form)
        if v.dtype == "float32":
            y = body.add("TANH", [body.add("ADD", [x, y])])
        if kind != 0:
            body.op("ASSIGN_VARIABLE", [variable, y], [])
        return y

    def _branch(self, builder: Builder, v: Variable, known: list[int], inputs: dict[str, Variable]) -> int:
        random, by_handle = self._random, self._random.random() < 0.4
        self.log.append(f"branch{' with a handle' * by_handle}")
        if random.random() < 0.25:
            decision = builder.constant(np.array([random.random() < 0.5]))
        else:
            decision = self._input(builder, Variable("", (1,), "bool"), inputs, f"decision{len(inputs)}")
        numbers = []
        for _ in range(2):
            body = Builder()
            x = body.input(v.shape, v.dtype, **v.form)
            given = body.input((), "resource") if by_handle else None
            y = x if random.random() < 0.2 else self._inner(v, body, x, given)
            if y == x:
                y = body.add("RESHAPE", [x, body.ints(v.shape)], v.shape, v.dtype, **v.form)
            numbers.append(self._main.subgraph(body, [y]))
        arguments = [random.choice(known), *([handle(builder, v.name)] if by_handle else [])]
        options = {"then_subgraph_index": numbers[0], "else_subgraph_index": numbers[1]}
        return builder.add("IF", [decision, *arguments], v.shape, v.dtype, **v.form, **options)

    def _loop(self, builder: Builder, v: Variable, known: list[int], inputs: dict[str, Variable]) -> int:
        random, by_handle = self._random, self._random.random() < 0.4
        self.log.append(f"loop{' with a handle' * by_handle}")
        forms = [((), "int32", {}), (v.shape, v.dtype, v.form), *([((), "resource", {})] if by_handle else [])]
        test, body = Builder(), Builder()
        count, *_ = (test.input(shape, dtype, **form) for shape, dtype, form in forms)
        less = test.add("LESS", [count, test.ints(random.randint(0, 3))], (), "bool")
        state = [body.input(shape, dtype, **form) for shape, dtype, form in forms]
        following = body.add("ADD", [state[0], body.ints(1)], (), "int32")
        value = self._inner(v, body, state[1], state[2] if by_handle else None)
        if value == state[1]:
            value = body.add("RESHAPE", [value, body.ints(v.shape)], v.shape, v.dtype, **v.form)
        numbers = [self._main.subgraph(test, [less]), self._main.subgraph(body, [following, value, *state[2:]])]
        if random.random() < 0.5:
            begin = builder.ints(0)
        else:
            begin = self._input(builder, Variable("", (), "int32"), inputs, f"count{len(inputs)}")
        given = [begin, random.choice(known), *([handle(builder, v.name)] if by_handle else [])]
        outputs = [builder.tensor(shape, dtype, **form) for shape, dtype, form in forms]
        options = {"cond_subgraph_index": numbers[0], "body_subgraph_index": numbers[1]}
        builder.op("WHILE", given, outputs, options)
        return outputs[1]

    def calls(self, interface: Interface) -> Iterator[Call]:
        random = self._random
        for _ in range(random.randint(3, 10)):
            way = random.choice(WAYS) if interface == "compile" else random.choice(("run", "run", "run", "reset"))
            if way == "reset" and interface == "CompiledModel":
                continue
            key = random.choice([*self._signatures])
            if way == "reset":
                yield Call(way)
                continue
            inputs = {name: self._given(name, v) for name, v in self._signatures[key].items()}
            if key == "restore":
                inputs["unused"] = np.zeros(1, np.float32)
            yield Call(way, key, inputs)
        yield Call("run", "save")

    def _given(self, name: str, v: Variable) -> Array:
        if name.startswith("count"):
            return np.array(self._random.randint(0, 3), np.int32)
        return self._value(v)


def answers(drawn: Stateful, device: str = "Intel") -> list[dict[str, Array]]:
    """The outputs of each call, by tflgpu."""
    execution = Execution(executor=drawn.executor, kernels=drawn.kernels, start=drawn.start)
    on_cpu = CpuPart(trial_timeout=SECONDS)
    options = Options(device=device, precision=drawn.precision, cache="off", execution=execution, cpu_part=on_cpu)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if drawn.interface == "compile":
            return _compiled_answers(drawn, options)
        if drawn.interface == "Interpreter":
            return _interpreter_answers(drawn.calls, tflgpu.Interpreter(model_content=drawn.model, options=options))
        return _litert_model_answers(drawn, options)


def _compiled_answers(drawn: Stateful, options: Options) -> list[dict[str, Array]]:
    found: list[Callable[[], dict[str, Array]]] = []
    with tflgpu.compile(drawn.model, options) as model:
        for call in drawn.calls:
            if call.way == "reset":
                model.reset_state()
                continue
            signature = model.signatures[call.signature]
            found.append(_started(signature, call))
        return [result() for result in found]


def _started(model: tflgpu.CompiledModel, call: Call) -> Callable[[], dict[str, Array]]:
    """Begin a call; the function that is returned has its outputs."""
    inputs = dict(call.inputs)
    match call.way:
        case "enqueue":
            return model.enqueue(inputs).wait
        case "pool":
            return tflgpu.Pool(model, 2).start_async(inputs).wait
        case "thread":
            with ThreadPoolExecutor(1) as threads:
                return threads.submit(model.run, inputs).result
        case "session" if "carry" in inputs:
            session = model.session({"carry_out": "carry"})
            session.reset({"carry": inputs.pop("carry")})
            outputs = session.run(call.signature, inputs)
            outputs["carry_out"] = session.state("carry")
            return lambda: outputs
    outputs = model.run(inputs)
    return lambda: outputs


def _interpreter_answers(calls: Sequence[Call], interpreter: Any) -> list[dict[str, Array]]:
    found = []
    for call in calls:
        if call.way == "reset":
            interpreter.reset_all_variables()
        else:
            found.append(interpreter.get_signature_runner(call.signature)(**call.inputs))
    return found


def _litert_model_answers(drawn: Stateful, options: Options) -> list[dict[str, Array]]:
    from tflgpu.compiled_model import CompiledModel

    model = CompiledModel.from_buffer(drawn.model, options=options)
    found = []
    for call in drawn.calls:
        number = model.get_signature_index(call.signature)
        inputs = model.create_input_buffers(number)
        outputs = model.create_output_buffers(number)
        details = model.get_signature_by_index(number)
        for name, buffer in zip(details["inputs"], inputs, strict=True):
            buffer.write(call.inputs[name])
        model.run_by_index(number, inputs, outputs)
        results = {}
        for name, buffer in zip(details["outputs"], outputs, strict=True):
            form = model.get_output_tensor_details(call.signature)[name]
            size = int(np.prod(form["shape"]))
            results[name] = buffer.read(size, np.dtype(form["dtype"])).reshape(form["shape"])
        found.append(results)
    return found


def judged_answers(drawn: Stateful) -> list[dict[str, Array]]:
    """The outputs of each call, by LiteRT's plain kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    def opened() -> Any:
        kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        interpreter = Interpreter(model_content=drawn.model, experimental_op_resolver_type=kernels)
        zeros = {f"{v.name}_value": np.zeros(v.shape, v.dtype) for v in drawn.variables}
        interpreter.get_signature_runner("restore")(unused=np.zeros(1, np.float32), **zeros)
        return interpreter

    interpreter, found = opened(), []
    for call in drawn.calls:
        if call.way == "reset":  # LiteRT's own leaves resource variables as they are
            interpreter = opened()
        else:
            found.append(interpreter.get_signature_runner(call.signature)(**call.inputs))
    return found


def difference(drawn: Stateful, got: Sequence[Mapping[str, Array]], wanted: Sequence[Mapping[str, Array]]) -> str:
    """Where the answers differ; empty if they do not."""
    calls = [call for call in drawn.calls if call.way != "reset"]
    for number, (call, mine, theirs) in enumerate(zip(calls, got, wanted, strict=True)):
        for name, value in theirs.items():
            error = np.abs(np.asarray(mine[name], np.float64) - np.asarray(value, np.float64))
            largest = float(np.abs(np.asarray(value, np.float64)).max())
            if mine[name].shape != value.shape or not float(error.max()) <= TOLERANCE[drawn.precision] * max(
                1, largest
            ):
                return f"call {number}, {call.way} {call.signature}: {name} is {mine[name]}, not {value}"
    return ""


def compile_in_short_time() -> None:
    """In this process, do not optimize, and take programs that an earlier model had."""
    compile_without_optimization()
    if folder := kept_programs():
        compiled_once(folder).__enter__()


class StateJudge:
    """Two processes: one for tflgpu, and one for LiteRT."""

    def __init__(self, device: str = "Intel", seconds: float = SECONDS, *, optimized: bool = True) -> None:
        """seconds: for a model. optimized: whether the device's compiler optimizes, and compiles each program anew."""
        prepare = None if optimized else compile_in_short_time
        self._tflgpu = Sandbox(partial(answers, device=device), seconds=seconds, memory=None, prepare=prepare)
        self._litert = Sandbox(judged_answers, seconds=seconds)

    def judge(self, drawn: Stateful) -> Verdict:
        wanted, fate = self._litert.run(drawn), self._tflgpu.run(drawn)
        if wanted.kind != "answer":
            return Verdict("litert differs", cause_of(wanted))
        if fate.kind == "public error" and not fate.text.startswith(("InternalError", "BuildError")):
            return Verdict("refused", fate.text)
        if fate.kind != "answer":
            return Verdict("fault", cause_of(fate))
        wrong = difference(drawn, fate.value, wanted.value)
        return Verdict("wrong", wrong) if wrong else Verdict("right")

    def close(self) -> None:
        self._tflgpu.close()
        self._litert.close()

    def __enter__(self) -> StateJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
