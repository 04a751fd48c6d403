"""Resource variables become values: a model in which no operator needs a handle.

In a file VAR_HANDLE gives a handle, CALL_ONCE runs a subgraph that assigns first values, READ_VARIABLE and
ASSIGN_VARIABLE do what they say, in the order of the file; subgraphs that IF and WHILE call do so, too. Here every
subgraph has the values of its variables at its start, as tensors, and at its end. What READ_VARIABLE gives is the value
that was assigned last. A call takes the values of the variables that its subgraphs use after its other inputs, and
gives them after its other outputs.

So variables of branches and loops are nothing but more inputs and outputs of these, on the device and on the CPU, and
what keeps them from run to run is no part of a partition.

What cannot become a value stays in LiteRT, in one interpreter of the opened model: it runs every signature that uses
such a variable or table, as the file has it, and every signature that shares another variable with one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tflgpu.errors import ModelError
from tflgpu.frontend.cpu_assumptions import TABLE_OPERATORS, hash_tables
from tflgpu.model.file_checks import called_by
from tflgpu.model.model import (
    NUMPY_TYPES,
    Array,
    FileTensor,
    FirstValues,
    Model,
    Operator,
    Subgraph,
    VariableUse,
)
from tflgpu.model.text import decoded

# Their numbers of inputs and outputs.
VARIABLE_OPERATORS: Mapping[str, tuple[int, int]] = {
    "CALL_ONCE": (0, 0),
    "VAR_HANDLE": (0, 1),
    "READ_VARIABLE": (1, 1),
    "ASSIGN_VARIABLE": (2, 0),
}

# Evaluates a subgraph without inputs. Returns the results of its operators: elements by tensor, in the elements of the
# file, and obstacles.
Evaluate = Callable[[int], tuple[Mapping[int, Array], tuple[str, ...]]]

Handles = dict[int, str]  # tensor of a subgraph -> key of the variable that it leads to


def key_of(operator: Operator) -> str:
    """Return the key of a VAR_HANDLE's variable: its container and its name."""
    container, name = (operator.options.get(part) or b"" for part in ("container", "shared_name"))
    return f"{container.decode('latin-1')}\0{name.decode('latin-1')}"


def container_and_name(key: str) -> tuple[str, str]:
    """Return the two texts that :func:`key_of` was given, printable.

    Args:
        key: The variable's.
    """
    container, name = (decoded(part.encode("latin-1")) for part in key.split("\0", 1))
    return container, name


def name_of(key: str) -> str:
    """Return a variable's name for messages.

    Args:
        key: The variable's.
    """
    return container_and_name(key)[1]


def variables_as_values(model: Model, evaluate: Evaluate) -> Model:
    """Return the model without handles of variables, but for subgraphs that are left to LiteRT.

    Args:
        model: The file.
        evaluate: What CALL_ONCE's subgraphs compute.

    Raises:
        ModelError: More is read of a variable than is assigned.
    """
    keeping, entries = {*VARIABLE_OPERATORS, *TABLE_OPERATORS}, [s.subgraph for s in model.signatures]
    if len({*entries}) == len(entries) and not any(o.code in keeping for s in model.subgraphs for o in s.operators):
        return model
    return _Rewriting(model, evaluate).model()


@dataclass
class _Variable:
    """Facts about a variable from all of the file.

    forms: tensors that are read from it, assigned to it, or are first values of it. entries: the subgraphs of
    signatures that use it. assigned: those that assign it, first values aside. initialized: those with a CALL_ONCE that
    assigns it. fault: why it cannot become values.
    """

    read: list[FileTensor] = field(default_factory=list)
    written: list[FileTensor] = field(default_factory=list)
    entries: set[int] = field(default_factory=set)
    assigned: set[int] = field(default_factory=set)
    initialized: set[int] = field(default_factory=set)
    fault: str = ""

    def form(self) -> FileTensor:
        """Return a tensor of its form."""
        known = [t for t in (*self.read, *self.written) if -1 not in t.signature]
        return (known or [*self.read, *self.written])[0]


@dataclass
class _Uses:
    """The variables that a subgraph uses, those that it calls included, in the order of the file.

    fault: why it is not known which ones they are.
    """

    used: dict[str, None] = field(default_factory=dict)
    assigned: dict[str, None] = field(default_factory=dict)
    outputs: Handles = field(default_factory=dict)  # places of outputs that are handles
    fault: str = ""

    def add(self, other: _Uses) -> None:
        self.used |= other.used
        self.assigned |= other.assigned
        self.fault = self.fault or other.fault


class _Rewriting:
    def __init__(self, model: Model, evaluate: Evaluate) -> None:
        self._model, self._evaluate = model, evaluate
        self._subgraphs = list(model.subgraphs)  # those rewritten in place, and after them the ones that calls need
        self._entries = tuple(dict.fromkeys((0, *(s.subgraph for s in model.signatures))))
        self._variables: dict[str, _Variable] = {}
        self._faults: dict[int, str] = {}  # why LiteRT runs all of an entry, whatever it does with which variables
        self._known: dict[tuple[int, tuple[tuple[int, str], ...]], _Uses] = {}
        self._first: dict[int, dict[str, Array | None]] = {}  # by subgraph of a CALL_ONCE
        self._once: dict[int, dict[int, int]] = {}  # by entry: subgraphs of its CALL_ONCEs, by operator
        self._callees: dict[tuple[object, ...], int] = {}
        self._computed: dict[int, tuple[Mapping[int, Array], tuple[str, ...]]] = {}  # by subgraph of a CALL_ONCE

    def model(self) -> Model:
        for number in self._entries:
            self._look(number)
        for key, variable in self._variables.items():
            variable.fault = _fault(name_of(key), variable) or variable.fault
        left = self._left_to_litert()
        for number in self._entries:
            reason = left.get(number)
            self._subgraphs[number] = self._entry(number) if reason is None else self._left(number, reason)
        kept = (key for key, v in self._variables.items() if not left.keys().isdisjoint(v.entries | v.initialized))
        uses = tuple(VariableUse(key, self._form(key), None, None) for key in kept)
        return replace(self._model, subgraphs=tuple(self._subgraphs), kept_in_litert=uses)

    def _left_to_litert(self) -> dict[int, str]:
        """Return the entries that LiteRT runs, and why: they use what cannot become a value, or share a variable with
        one that does."""
        left = dict(self._faults)
        for number, table in hash_tables(self._model, self._entries).items():
            if table.fault:
                left |= dict.fromkeys(table.entries - left.keys(), f"hash table {number} must be one: {table.fault}")
        reasons = {
            key: f"variable {name_of(key)!r} cannot be kept: {variable.fault}" if variable.fault else ""
            for key, variable in self._variables.items()
        }
        size = -1
        while size != len(left):
            size = len(left)
            for key, variable in self._variables.items():
                users = variable.entries | variable.initialized
                known = reasons[key] or next((left[number] for number in users if number in left), "")
                if known:
                    left |= dict.fromkeys(users - left.keys(), known)
        return left

    def _left(self, number: int, reason: str) -> Subgraph:
        """Return an entry as the file has it, for LiteRT."""
        codes = {*VARIABLE_OPERATORS, *TABLE_OPERATORS} - {"VAR_HANDLE", "HASHTABLE"}
        keeping = {n for n, s in enumerate(self._model.subgraphs) if any(o.code in codes for o in s.operators)}
        subgraph = self._model.subgraphs[number]

        def keeps(operator: Operator) -> bool:
            """Whether an operator reads or writes what LiteRT keeps."""
            tensors = (subgraph.tensors[t] for t in (*operator.inputs, *operator.outputs) if t >= 0)
            calls = any(not keeping.isdisjoint(self._reached(n)) for n in called_by(operator))
            return operator.code in codes or calls or any(t.is_variable for t in tensors)

        operators = (replace(o, obstacle=reason) if keeps(o) else o for o in subgraph.operators)
        return replace(subgraph, operators=tuple(operators), is_left_to_litert=True)

    # Analysis: how the file uses variables.

    def _look(self, entry: int) -> None:
        """Note what an entry point does."""
        uses, subgraph = self._uses(entry, {}), self._model.subgraphs[entry]
        for key in uses.used:
            self._variables[key].entries.add(entry)
        for key in uses.assigned:
            self._variables[key].assigned.add(entry)
        self._once[entry] = {}
        if fault := uses.fault or next(self._entry_faults(entry), ""):
            self._faults[entry] = fault
            for key in {key for number in self._reached(entry) for key in self._named(number)}:
                self._variable(key).initialized.add(entry)
        for operator in subgraph.operators:
            if operator.code == "CALL_ONCE":
                self._look_at_first_values(entry, operator)

    def _entry_faults(self, entry: int) -> Iterator[str]:
        """Why LiteRT runs all of an entry, whatever it does with which variables."""
        subgraph = self._model.subgraphs[entry]
        count = sum(signature.subgraph == entry for signature in self._model.signatures)
        if count > 1 and any(tensor.is_variable for tensor in subgraph.tensors):
            yield "several signatures keep values in tensors of one subgraph"
        for number in (n for operator in subgraph.operators for n in called_by(operator)):
            if any(o.code == "CALL_ONCE" for n in self._reached(number) for o in self._model.subgraphs[n].operators):
                yield f"its subgraph {number} has a CALL_ONCE of its own"

    def _look_at_first_values(self, entry: int, operator: Operator) -> None:
        number = operator.options.get("init_subgraph_index", 0)
        first = self._first_values(number)
        self._once[entry][operator.index] = number
        subgraph = self._model.subgraphs[entry]
        used_before = self._uses_of(replace(subgraph, operators=subgraph.operators[: operator.index]), {}).used
        for key in first:
            self._variables[key].initialized.add(entry)
            if key in used_before:
                self._variables[key].fault = "a CALL_ONCE initializes it after an operator used it"

    def _first_values(self, number: int) -> dict[str, Array | None]:
        """Return what a CALL_ONCE's subgraph assigns; None for a value that is no constant."""
        if number in self._first:
            return self._first[number]
        subgraph = self._model.subgraphs[number]
        handles: Handles = {}
        found: dict[str, Array | None] = {}
        for operator in filter(_is_well_formed, subgraph.operators):
            if operator.code == "VAR_HANDLE":
                handles[operator.outputs[0]] = key_of(operator)
            elif operator.code == "ASSIGN_VARIABLE" and operator.inputs[0] in handles:
                key, tensor = handles[operator.inputs[0]], subgraph.tensors[operator.inputs[1]]
                found[key], fault = self._known_value(number, tensor)
                self._variable(key).fault = self._variable(key).fault or fault
        reads = any(o.code in ("READ_VARIABLE", "CALL_ONCE") for o in subgraph.operators)
        for key in self._uses(number, {}).used:
            if key not in found or reads:
                found[key] = None
                self._variable(key).fault = "what its first value is depends on variables, or on calls of subgraphs"
        self._first[number] = found
        return found

    def _known_value(self, number: int, tensor: FileTensor) -> tuple[Array | None, str]:
        """Return what is assigned in a CALL_ONCE's subgraph; or None, and why it is not known."""
        if tensor.data is not None and tensor.data.shape == tensor.shape:
            return tensor.data, ""
        if number not in self._computed:
            self._computed[number] = self._evaluate(number)
        values, obstacles = self._computed[number]
        value = values.get(tensor.index)
        if value is not None and (value.shape, value.dtype.name) == (tensor.shape, tensor.dtype):
            return value, ""
        return None, ": ".join(("its first value is no constant", *obstacles[:1]))

    def _reached(self, number: int) -> set[int]:
        """Return the subgraphs that a subgraph calls, those that these call, and itself."""
        found, pending = {number}, [number]
        while pending:
            called = {n for o in self._model.subgraphs[pending.pop()].operators for n in called_by(o)} - found
            found |= called
            pending += called
        return found

    def _named(self, number: int) -> set[str]:
        return {key_of(o) for o in self._model.subgraphs[number].operators if o.code == "VAR_HANDLE"}

    def _variable(self, key: str) -> _Variable:
        return self._variables.setdefault(key, _Variable())

    def _uses(self, number: int, handles: Handles) -> _Uses:
        """Return what a subgraph uses. handles: its inputs that are handles."""
        place = number, tuple(sorted(handles.items()))
        if place not in self._known:
            self._known[place] = self._uses_of(self._model.subgraphs[number], handles)
        return self._known[place]

    def _uses_of(self, subgraph: Subgraph, handles: Handles) -> _Uses:
        handles, uses = dict(handles), _Uses()
        for operator in filter(_is_well_formed, subgraph.operators):
            key = handles.get(operator.inputs[0]) if operator.inputs else None
            match operator.code:
                case "VAR_HANDLE":
                    handles[operator.outputs[0]] = key_of(operator)
                case "READ_VARIABLE" if key is not None:
                    uses.used[key] = None
                    target = subgraph.tensors[operator.outputs[0]]
                    self._note(key, target, self._variable(key).read)
                case "ASSIGN_VARIABLE" if key is not None:
                    uses.used[key] = uses.assigned[key] = None
                    self._note(key, subgraph.tensors[operator.inputs[1]], self._variable(key).written)
                case "READ_VARIABLE" | "ASSIGN_VARIABLE":
                    uses.fault = "the handle of a variable does not come from a VAR_HANDLE that is known"
                case "CALL_ONCE":
                    continue
                case _:
                    found = self._uses_of_call(operator, handles)
                    uses.add(found)
                    handles |= {operator.outputs[p]: k for p, k in found.outputs.items()}
        uses.outputs = {p: handles[t] for p, t in enumerate(subgraph.outputs) if t in handles}
        return uses

    def _note(self, key: str, tensor: FileTensor, tensors: list[FileTensor]) -> None:
        tensors.append(tensor)
        if tensor.is_variable:
            self._variable(key).fault = f"tensor {tensor.name!r}, which keeps its value itself, takes part in it"

    def _uses_of_call(self, operator: Operator, handles: Handles) -> _Uses:
        """Return what the subgraphs use that an operator calls."""
        uses = _Uses()
        for number, called in self._called(operator, handles):
            found = self._uses(number, called)
            uses.add(found)
            if number != operator.options.get("cond_subgraph_index"):
                for place, key in found.outputs.items():
                    if uses.outputs.setdefault(place, key) != key:
                        self._variable(key).fault = "a branch decides which variable it is"
            if number == operator.options.get("cond_subgraph_index"):
                for key in found.assigned:
                    self._variable(key).fault = "the condition of a WHILE assigns it"
        return uses

    def _called(self, operator: Operator, handles: Handles) -> Iterator[tuple[int, Handles]]:
        """Yield the subgraphs that an operator calls, and which of their inputs are handles."""
        given = operator.inputs[1:] if operator.code == "IF" else operator.inputs
        for number in called_by(operator):
            pairs = zip(self._model.subgraphs[number].inputs, given, strict=False)
            yield number, {inner: handles[outer] for inner, outer in pairs if outer in handles}

    # The same with values.

    def _entry(self, number: int) -> Subgraph:
        scope = _Scope(self._model.subgraphs[number])
        constants = self._constants(number)
        for key, value in constants.items():
            scope.now[key] = scope.add(replace(self._form(key), data=value))
        operators = tuple(self._operator(o, scope, self._once[number]) for o in scope.subgraph.operators)
        uses = (self._use(key, scope) for key in scope.now if key not in constants)
        first = (
            FirstValues(subgraph, tuple(self._first_uses(subgraph)))
            for subgraph in dict.fromkeys(self._once[number].values())
        )
        return replace(
            scope.rewritten(operators),
            variables=tuple(uses),
            first_values=tuple(each for each in first if each.values),
        )

    def _use(self, key: str, scope: _Scope) -> VariableUse:
        before, after = scope.before.get(key), scope.now[key]
        is_shared = len(self._variables[key].entries) > 1
        return VariableUse(key, self._form(key), before, None if after == before else after, is_shared)

    def _constants(self, entry: int) -> dict[str, Array]:
        """Return the variables that nothing changes after an entry point's CALL_ONCEs."""
        found: dict[str, Array] = {}
        for number in self._once[entry].values():
            known = self._first[number].items()
            found |= {key: value for key, value in known if value is not None and self._is_constant(key)}
        return found

    def _is_constant(self, key: str) -> bool:
        """Whether each entry point that uses a variable gives it the same value first, which nothing changes."""
        variable = self._variables[key]
        givers = {number for number, first in self._first.items() if key in first}
        always = all(givers <= {*self._once[entry].values()} for entry in variable.entries)
        return len(givers) == 1 and always and not variable.assigned

    def _first_uses(self, number: int) -> Iterator[tuple[VariableUse, Array]]:
        for key, value in self._first[number].items():
            if value is not None and not self._is_constant(key):
                yield VariableUse(key, self._form(key), None, None), value

    def _form(self, key: str) -> FileTensor:
        return replace(self._variables[key].form(), name=name_of(key), data=None, is_variable=False, sparse=None)

    def _operator(self, operator: Operator, scope: _Scope, once: Mapping[int, int]) -> Operator:
        """Return an operator on values. once: subgraphs of CALL_ONCEs, by operator."""
        if operator.code == "CALL_ONCE":
            return self._call_once(operator, once)
        if not _is_well_formed(operator):
            wanted, found = VARIABLE_OPERATORS[operator.code], (len(operator.inputs), len(operator.outputs))
            counts = f"it has {found[0]} inputs and {found[1]} outputs where {wanted[0]} and {wanted[1]} are expected"
            return replace(operator, obstacle=counts)
        match operator.code:
            case "VAR_HANDLE":
                scope.handles[operator.outputs[0]] = key_of(operator)
                return _idle(operator)
            case "READ_VARIABLE" | "ASSIGN_VARIABLE":
                key = scope.handles[operator.inputs[0]]
                if operator.code == "READ_VARIABLE":
                    scope.aliases[operator.outputs[0]] = self._value(key, scope)
                else:
                    scope.now[key] = scope.renamed(operator.inputs[1:])[0]
                return _idle(operator)
        if called_by(operator):
            return self._call(operator, scope)
        return replace(operator, inputs=scope.renamed(operator.inputs))

    def _value(self, key: str, scope: _Scope) -> int:
        """Return the tensor with a variable's value now."""
        if key not in scope.now:
            scope.before[key] = scope.now[key] = scope.add(self._form(key))
        return scope.now[key]

    def _call_once(self, operator: Operator, once: Mapping[int, int]) -> Operator:
        number = once[operator.index]
        called = self._model.subgraphs[number]
        own = {t for o in called.operators if o.code == "VAR_HANDLE" for t in o.outputs}
        for other in called.operators:
            touched = [t for t in (*other.inputs, *other.outputs) if t >= 0 and t not in own]
            if any(called.tensors[t].dtype in ("resource", "variant") for t in touched):
                obstacle = f"in its subgraph {number}, operator {other.index} {other.code} has no kernel for the device"
                return replace(operator, obstacle=obstacle)
        return _idle(operator)

    def _call(self, operator: Operator, scope: _Scope) -> Operator:
        """Return an operator that calls subgraphs: it takes and gives values in place of handles."""
        uses = self._uses_of_call(operator, scope.handles)
        handles, used, results = scope.handles, list(uses.used), uses.outputs
        taken = [t for t in operator.inputs if t in handles]
        plain = replace(operator, inputs=scope.renamed(operator.inputs))
        if not (used or taken or results) or not self._fits(operator):
            return plain
        given = [t for t in plain.inputs if t not in handles]
        before = [self._value(key, scope) for key in used]
        changed = used if operator.code == "WHILE" else [key for key in used if key in uses.assigned]
        options = dict(operator.options)
        called = {name: n for name, n in options.items() if "subgraph" in name and isinstance(n, int)}
        inner = dict(self._called(operator, handles))
        for name, number in called.items():
            given_back = () if name == "cond_subgraph_index" else tuple(changed)
            dropped = () if name == "cond_subgraph_index" else tuple(results)
            options[name] = self._callee(number, inner[number], tuple(used), given_back, dropped)
        after = {key: scope.add(self._form(key)) for key in changed}
        scope.now |= after
        scope.handles |= {operator.outputs[p]: key for p, key in results.items()}
        kept = [t for p, t in enumerate(operator.outputs) if p not in results]
        variables = (VariableUse(key, self._form(key), b, after.get(key)) for key, b in zip(used, before, strict=True))
        return replace(
            plain,
            inputs=(*given, *before),
            outputs=(*kept, *after.values()),
            options=options,
            variables=tuple(variables),
            handles=tuple((t, handles[t]) for t in dict.fromkeys(taken)),
        )

    def _fits(self, operator: Operator) -> bool:
        """Whether an operator gives its subgraphs what they take."""
        given = len(operator.inputs) - (operator.code == "IF")
        return all(len(self._model.subgraphs[n].inputs) == given for n in called_by(operator))

    def _callee(
        self, number: int, handles: Handles, used: tuple[str, ...], changed: tuple[str, ...], dropped: tuple[int, ...]
    ) -> int:
        """Return the number of a subgraph that takes the values of ``used`` and gives those of ``changed``.

        handles: its inputs that it takes no more. dropped: the places of outputs that it gives no more.
        """
        place = number, tuple(sorted(handles.items())), used, changed, dropped
        if place not in self._callees:
            scope = _Scope(self._model.subgraphs[number], handles)
            for key in used:
                self._value(key, scope)
            operators = tuple(self._operator(o, scope, {}) for o in scope.subgraph.operators)
            outputs = [t for p, t in enumerate(scope.subgraph.outputs) if p not in dropped]
            self._subgraphs.append(
                replace(
                    scope.rewritten(operators),
                    inputs=(*(t for t in scope.subgraph.inputs if t not in handles), *scope.before.values()),
                    outputs=(*scope.renamed(outputs), *(scope.now[key] for key in changed)),
                )
            )
            self._callees[place] = len(self._subgraphs) - 1
        return self._callees[place]


class _Scope:
    """A subgraph while its operators are rewritten.

    before, now: the tensors with the variables' values at its start and now, by key.
    """

    def __init__(self, subgraph: Subgraph, handles: Handles | None = None) -> None:
        self.subgraph, self.tensors = subgraph, list(subgraph.tensors)
        self.handles: Handles = dict(handles or {})
        self.aliases: dict[int, int] = {}
        self.before: dict[str, int] = {}
        self.now: dict[str, int] = {}

    def add(self, tensor: FileTensor) -> int:
        """Return the number of one more tensor."""
        self.tensors.append(replace(tensor, index=len(self.tensors)))
        return len(self.tensors) - 1

    def renamed(self, tensors: Iterable[int]) -> tuple[int, ...]:
        """Return the tensors that have the values of these."""
        return tuple(self.aliases.get(t, t) for t in tensors)

    def rewritten(self, operators: tuple[Operator, ...]) -> Subgraph:
        return replace(self.subgraph, tensors=tuple(self.tensors), operators=operators, aliases=self.aliases)


def _idle(operator: Operator) -> Operator:
    return replace(operator, inputs=(), outputs=(), is_idle=True)


def _is_well_formed(operator: Operator) -> bool:
    """Whether an operator of variables has the inputs and outputs that it should have."""
    wanted = VARIABLE_OPERATORS.get(operator.code)
    counts = len(operator.inputs), len(operator.outputs)
    return wanted is None or (counts == wanted and -1 not in operator.inputs)


def _fault(name: str, variable: _Variable) -> str:
    """Why a variable cannot become values; empty if it can.

    Raises ModelError if more of it is read than is assigned: LiteRT reads what lies after it.
    """
    forms = [*variable.read, *variable.written]
    if not forms:
        return ""
    first = forms[0]
    for tensor in forms:
        if (tensor.dtype, tensor.quantization) != (first.dtype, first.quantization):
            return (
                f"it holds {first.dtype} with quantization {first.quantization}, but tensor {tensor.name!r} is "
                f"{tensor.dtype} with {tensor.quantization}"
            )
    if first.dtype not in NUMPY_TYPES:
        return f"it holds elements of type {first.dtype}"
    if first.quantization is not None and len(first.quantization.scale) > 1:
        return "it has a scale for each of several parts"
    shapes = dict.fromkeys(t.shape for t in forms if -1 not in t.signature)
    read, written = ([t for t in side if -1 not in t.signature] for side in (variable.read, variable.written))
    for target in read:
        if source := next((t for t in written if t.bytes < target.bytes), None):
            raise ModelError(
                f"a READ_VARIABLE: it reads variable {name!r} of shape {list(source.shape)} as {list(target.shape)}"
            )
    if len(shapes) > 1:
        return f"its values have shapes {' and '.join(str(list(shape)) for shape in shapes)}"
    return ""
