"""The OpenCL C of executors as programs of steps, each of which accesses memory that threads share once at most.

Pycparser reads the rendered text, so that what is explored is what devices run. Functions are inlined. The registers of
an access's successor that nothing reads are forgotten, so that equal states are found equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pycparser import c_ast, c_parser

# `__local` is told from other memory by a qualifier that pycparser knows.
PRELUDE = "".join(
    f"typedef {a} {b};\n"
    for a, b in (
        ("unsigned", "uint"),
        ("unsigned", "atomic_uint"),
        ("unsigned", "memory_order"),
        ("unsigned long", "ulong"),
        ("unsigned char", "uchar"),
        ("unsigned short", "ushort"),
        ("float", "float4"),
        ("int", "bool"),
    )
)
SIGNED = {"int", "bool"}
ORDERS = {
    "memory_order_relaxed": "",
    "memory_order_acquire": "a",
    "memory_order_release": "r",
    "memory_order_acq_rel": "ar",
    "memory_order_seq_cst": "ar",
}
# The results of these are the same for each work-item all the time.
IDENTITY = {
    "get_global_id": "t.first + t.group * t.size + t.item",
    "get_group_id": "t.group",
    "get_local_id": "t.item",
    "get_num_groups": "t.groups",
    "get_local_size": "t.size",
    "grid_clock": "1",
}
ASSEMBLY = re.compile(
    r'asm volatile\("(\w+)\.(?:(relaxed|acquire|release|acq_rel)\.gpu\.global|u64)[^"]*"\s*'
    r":([^:;]*)(?::([^:;]*))?(?::[^;]*)?\);"
)


@dataclass
class Instruction:
    """``set``, ``branch`` (to ``target`` if false), ``end``, or an access: :class:`tests.schedules.machine.State`."""

    kind: str
    arguments: tuple[str, ...] = ()
    result: int | None = None
    target: int = -1
    order: str = ""
    functions: tuple[Callable[..., Any], ...] = ()
    dead: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """The steps of one kernel, and the registers that hold its parameters, by name."""

    instructions: list[Instruction]
    parameters: dict[str, int]
    registers: int


@dataclass
class _Name:
    """A register (``text``), a table of constants, or memory of a work-group (``region``)."""

    text: str
    type: str
    register: int | None = None
    region: str | None = None
    fields: dict[str, _Name] = field(default_factory=dict)


def compile_kernel(text: str, kernel: str) -> Program:
    """The program of a kernel of a text of OpenCL C."""
    tree = c_parser.CParser().parse(PRELUDE + _plain_c(text))
    return _Compiler(tree).compile(kernel)


def _plain_c(text: str) -> str:
    """The text as C: without OpenCL's qualifiers, and with calls for NVIDIA's assembly."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    macros = re.findall(r"^#define (\w+) (.*)$", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    for name, value in macros:
        text = re.sub(rf"\b{name}\b", value, text)
    text = ASSEMBLY.sub(_call_of_assembly, text)
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", "", text)
    text = re.sub(r"\b__(?:global|constant|kernel)\b|\b(?:static|inline)\b", "", text)
    return re.sub(r"\b__local\b", "_Atomic", text)


def _call_of_assembly(found: re.Match[str]) -> str:
    """``ld.acquire.gpu.global.u32`` as ``value = ptx_ld(word, memory_order_acquire);``."""
    operation, order, outputs, inputs = found.groups()
    operands = re.findall(r"\((\w+)\)", f"{outputs}:{inputs}")
    given = [operands[int(number)] for number in re.findall(r"%(\d)", found[0])]
    into = f"{given.pop(0)} = " if "=" in outputs else ""
    return f"{into}ptx_{operation}({', '.join([*given, f'memory_order_{order}'] if order else [])});"


class _Compiler:
    def __init__(self, tree: Any) -> None:
        self._functions = {node.decl.name: node for node in tree.ext if isinstance(node, c_ast.FuncDef)}
        self._code: list[Instruction] = []
        self._registers = 0
        self._loops: list[tuple[list[int], list[int]]] = []  # of each loop or switch: its breaks and continues
        self._scopes: list[dict[str, _Name]] = [{}]
        self._returns: list[tuple[_Name | None, list[int]]] = []
        self._structures: dict[str, list[tuple[str, str]]] = {}
        for node in tree.ext:
            if isinstance(node, c_ast.Typedef) and isinstance(node.type.type, c_ast.Struct):
                fields = node.type.type.decls
                self._structures[node.name] = [(f.name, self._type(f.type)) for f in fields]
            elif isinstance(node, c_ast.Decl) and node.init is not None:
                numbers = ", ".join(self._value(e)[0] for e in node.init.exprs)
                self._scopes[0][node.name] = _Name(f"({numbers},)", self._type(node.type.type))

    def compile(self, kernel: str) -> Program:
        function = self._functions[kernel]
        self._scopes.append({})
        parameters = {p.name: self._declare(p.name, self._type(p.type)) for p in function.decl.type.args.params}
        self._returns.append((None, []))
        self._run(function.body)
        self._land(self._returns[-1][1])
        self._emit("end")
        code = self._code
        for instruction in code:
            instruction.functions = tuple(eval(f"lambda r, t: {text}") for text in instruction.arguments)
        _forget_dead(code)
        return Program(code, {n: p.register for n, p in parameters.items() if p.register is not None}, self._registers)

    # Names and types

    def _type(self, node: Any) -> str:
        if isinstance(node, c_ast.PtrDecl | c_ast.ArrayDecl):
            return self._type(node.type) + "*"
        return self._type(node.type) if isinstance(node, c_ast.TypeDecl) else " ".join(node.names)

    def _declare(self, name: str, kind: str) -> _Name:
        made = _Name("", kind)
        if kind in self._structures:
            made.fields = {n: self._declare(f"{name}.{n}", k) for n, k in self._structures[kind]}
        else:
            made.register, self._registers = self._registers, self._registers + 1
            made.text = f"r[{made.register}]"
        self._scopes[-1][name] = made
        return made

    def _find(self, name: str) -> _Name:
        return next(scope[name] for scope in reversed(self._scopes) if name in scope)

    def _emit(self, kind: str, *arguments: str, result: int | None = None, order: str = "") -> int:
        self._code.append(Instruction(kind, arguments, result, order=order))
        return len(self._code) - 1

    def _jump(self, target: int = -1) -> int:
        number = self._emit("branch", "False")
        self._code[number].target = target
        return number

    def _land(self, jumps: list[int]) -> None:
        for jump in jumps:
            self._code[jump].target = len(self._code)

    def _set(self, name: _Name, text: str) -> None:
        assert name.register is not None
        unsigned = " & 0xFFFFFFFF" if name.type == "uint" else ""
        text = f"int(bool({text}))" if name.type == "bool" else f"({text}){unsigned}"
        self._emit("set", text, result=name.register)

    def _temporary(self, kind: str, text: str | None = None) -> _Name:
        made = self._declare(f"<{self._registers}>", kind)
        if text is not None:
            self._set(made, text)
        return made

    # Statements

    def _run(self, node: Any) -> None:
        if node is not None:
            getattr(self, f"_run_{type(node).__name__.lower()}", self._run_expression)(node)

    def _run_expression(self, node: Any) -> None:
        self._value(node)

    def _run_compound(self, node: Any) -> None:
        self._scopes.append({})
        for item in node.block_items or ():
            self._run(item)
        self._scopes.pop()

    def _run_decllist(self, node: Any) -> None:
        for decl in node.decls:
            self._run(decl)

    def _run_decl(self, node: Any) -> None:
        kind = self._type(node.type)
        if isinstance(node.type, c_ast.ArrayDecl) or ("_Atomic" in node.quals and not kind.endswith("*")):
            region = f"local {node.name}"
            self._scopes[-1][node.name] = _Name(f"(({region!r}, t.launch, t.group), 0)", kind, region=region)
            return
        values = [e for e in node.init.exprs] if isinstance(node.init, c_ast.InitList) else node.init
        if isinstance(values, list):
            texts = [self._value(e)[0] for e in values]
            for name, text in zip(self._declare(node.name, kind).fields.values(), texts, strict=True):
                self._set(name, text)
        elif values is None:
            self._declare(node.name, kind)
        else:
            text, _ = self._value(values)
            self._set(self._declare(node.name, kind), text)

    def _run_if(self, node: Any) -> None:
        no = self._emit("branch", self._value(node.cond)[0])
        self._run(node.iftrue)
        if node.iffalse is None:
            self._land([no])
            return
        over = self._jump()
        self._land([no])
        self._run(node.iffalse)
        self._land([over])

    def _run_for(self, node: Any) -> None:
        self._scopes.append({})
        self._run(node.init)
        begin = len(self._code)
        no = [self._emit("branch", self._value(node.cond)[0])] if node.cond is not None else []
        self._loop(node.stmt, lambda: self._run(node.next), begin, no)
        self._scopes.pop()

    def _run_while(self, node: Any) -> None:
        begin = len(self._code)
        no = self._emit("branch", self._value(node.cond)[0])
        self._loop(node.stmt, lambda: None, begin, [no])

    def _run_dowhile(self, node: Any) -> None:
        begin, no = len(self._code), list[int]()
        self._loop(node.stmt, lambda: no.append(self._emit("branch", self._value(node.cond)[0])), begin, no)

    def _loop(self, body: Any, after: Callable[[], object], begin: int, exits: list[int]) -> None:
        breaks, continues = list[int](), list[int]()
        self._loops.append((breaks, continues))
        self._run(body)
        self._land(continues)
        after()
        self._jump(begin)
        self._land([*exits, *breaks])
        self._loops.pop()

    def _run_switch(self, node: Any) -> None:
        text, kind = self._value(node.cond)
        value, breaks = self._temporary(kind, text), list[int]()
        self._loops.append((breaks, []))
        entries, cases = {}, node.stmt.block_items
        for case in cases:
            self._emit("branch", f"{value.text} != {self._value(case.expr)[0]}")
            entries[len(self._code) - 1] = case
        breaks.append(self._jump())
        for entry, case in entries.items():
            self._land([entry])
            self._scopes.append({})
            for statement in case.stmts:
                self._run(statement)
            self._scopes.pop()
        self._land(breaks)
        self._loops.pop()

    def _run_break(self, _: Any) -> None:
        self._loops[-1][0].append(self._jump())

    def _run_return(self, node: Any) -> None:
        result, jumps = self._returns[-1]
        if node.expr is not None:
            text, _ = self._value(node.expr)
            assert result is not None
            self._set(result, text)
        jumps.append(self._jump())

    # Expressions: each as the text of a Python expression of registers, and its type

    def _value(self, node: Any) -> tuple[str, str]:
        return getattr(self, f"_value_{type(node).__name__.lower()}")(node)  # type: ignore[no-any-return]

    def _value_constant(self, node: Any) -> tuple[str, str]:
        digits = node.value.rstrip("uU")
        return str(int(digits, 0)), "int" if digits == node.value else "uint"

    def _value_id(self, node: Any) -> tuple[str, str]:
        if node.name in ("true", "false"):
            return str(int(node.name == "true")), "int"
        if node.name in ORDERS or node.name.isupper() or node.name.startswith("memory_scope"):
            return repr(node.name), "order"
        name = self._find(node.name)
        if name.region and not name.type.endswith("*"):
            return self._access("plain load", name.type, name.text)
        return name.text, name.type

    def _value_structref(self, node: Any) -> tuple[str, str]:
        name = self._find(node.name.name).fields[node.field.name]
        return name.text, name.type

    def _value_cast(self, node: Any) -> tuple[str, str]:
        (text, _), kind = self._value(node.expr), self._type(node.to_type.type)
        if kind == "uint":
            return f"(({text}) & 0xFFFFFFFF)", kind
        return (f"(((({text}) + 0x80000000) & 0xFFFFFFFF) - 0x80000000)", kind) if kind == "int" else (text, kind)

    def _value_exprlist(self, node: Any) -> tuple[str, str]:
        return [self._value(e) for e in node.exprs][-1]

    def _value_ternaryop(self, node: Any) -> tuple[str, str]:
        no = self._emit("branch", self._value(node.cond)[0])
        text, kind = self._value(node.iftrue)
        result = self._temporary(kind, text)
        over = self._jump()
        self._land([no])
        self._set(result, self._value(node.iffalse)[0])
        self._land([over])
        return result.text, kind

    def _value_arrayref(self, node: Any) -> tuple[str, str]:
        (array, kind), (index, _) = self._value(node.name), self._value(node.subscript)
        if kind.endswith("*"):
            return self._access("plain load", kind[:-1], f"({array}[0], {array}[1] + {index})")
        return f"{array}[{index}]", kind

    def _value_binaryop(self, node: Any) -> tuple[str, str]:
        if node.op in ("&&", "||"):
            result = self._temporary("bool", self._value(node.left)[0])
            skip = self._emit("branch", result.text if node.op == "&&" else f"not {result.text}")
            self._set(result, self._value(node.right)[0])
            self._land([skip])
            return result.text, "bool"
        left, right = self._value(node.left), self._value(node.right)
        return self._binary(node.op, left, right)

    def _binary(self, op: str, left: tuple[str, str], right: tuple[str, str]) -> tuple[str, str]:
        (a, one), (b, other) = left, right
        if one.endswith("*"):
            return f"({a}[0], {a}[1] {op} {b})", one
        signed = one in SIGNED and other in SIGNED
        if op in ("<", ">", "<=", ">=", "==", "!="):
            if not signed:
                a, b = (f"({text} & 0xFFFFFFFF)" for text in (a, b))
            return f"({a} {op} {b})", "int"
        if op in "/%" and signed:
            raise NotImplementedError("C and Python divide negative numbers otherwise")
        text = f"({a} {'//' if op == '/' else op} {b})"
        return (text, "int") if signed else (f"({text} & 0xFFFFFFFF)", "uint")

    def _value_assignment(self, node: Any) -> tuple[str, str]:
        value = self._value(node.rvalue)
        if node.op != "=":
            value = self._binary(node.op[:-1], self._value(node.lvalue), value)
        return self._assign(node.lvalue, *value)

    def _assign(self, target: Any, text: str, kind: str) -> tuple[str, str]:
        name = self._register_of(target)
        if name is not None:
            self._set(name, text)
            return name.text, name.type
        if isinstance(target, c_ast.ArrayRef):
            (array, _), (index, _) = self._value(target.name), self._value(target.subscript)
            place = f"({array}[0], {array}[1] + {index})"
        else:
            place = self._value(target.expr)[0] if isinstance(target, c_ast.UnaryOp) else self._find(target.name).text
        self._emit("plain store", place, text)
        return text, kind

    def _register_of(self, target: Any) -> _Name | None:
        """The register that an expression names: of a variable, or of one that the caller has passed by pointer."""
        if isinstance(target, c_ast.UnaryOp) and target.op == "*" and isinstance(target.expr, c_ast.ID):
            return self._find(target.expr.name).fields.get("*")
        found = self._find(target.name) if isinstance(target, c_ast.ID) else None
        return found if found is not None and found.register is not None else None

    def _value_unaryop(self, node: Any) -> tuple[str, str]:
        if node.op == "&":
            name = self._find(node.expr.name)
            assert name.region, "the address of a register is for functions that are inlined"
            return name.text, f"{name.type}*"
        passed = self._register_of(node)
        if passed is not None:
            return passed.text, passed.type
        text, kind = self._value(node.expr)
        if node.op in ("p++", "p--", "++", "--"):
            before = self._temporary(kind, text)
            after = self._assign(node.expr, *self._binary(node.op[-1], (before.text, kind), ("1", "int")))
            return (before.text, kind) if node.op[0] == "p" else after
        if node.op == "*":
            return self._access("plain load", kind[:-1], text)
        return (f"int(not {text})", "int") if node.op == "!" else (f"({node.op}{text})", kind)

    def _access(self, kind: str, type_: str, *arguments: str, order: str = "") -> tuple[str, str]:
        result = self._temporary(type_)
        self._emit(kind, *arguments, result=result.register, order=order)
        return result.text, type_

    def _value_funccall(self, node: Any) -> tuple[str, str]:
        name, nodes = node.name.name, node.args.exprs if node.args else []
        if name in IDENTITY:
            if nodes and self._value(nodes[0])[0] != "0":  # there is one dimension
                return ("1" if name in ("get_num_groups", "get_local_size") else "0"), "uint"
            return f"({IDENTITY[name]})", "uint"
        if name == "visit":
            self._emit("visit", *(self._value(n)[0] for n in nodes))
            return "0", "int"
        if name in ("barrier", "mem_fence"):
            self._emit(name, repr(frozenset(_flags(nodes[0]))))
            return "0", "int"
        if name in ("max", "min"):
            (a, kind), (b, _) = map(self._value, nodes)
            return f"{name}({a}, {b})", kind
        if name.startswith(("atomic_", "ptx_")):
            return self._atomic(name, nodes)
        return self._inlined(self._functions[name], nodes)

    def _atomic(self, name: str, nodes: list[Any]) -> tuple[str, str]:
        orders = [ORDERS[n.name] for n in nodes if isinstance(n, c_ast.ID) and n.name in ORDERS]
        scopes = {n.name for n in nodes if isinstance(n, c_ast.ID) and n.name.startswith("memory_scope")}
        # Accesses that are ordered for one work-group are not ordered for others.
        order = orders[0] if orders and scopes <= {"memory_scope_device"} else ""
        name = name.removesuffix("_explicit").removeprefix("atomic_").removeprefix("ptx_").removeprefix("fetch_")
        values = [n for n in nodes if not (isinstance(n, c_ast.ID) and n.name.startswith("memory_"))]
        if name in ("load", "ld"):
            return self._access("load", "uint", self._value(values[0])[0], order=order)
        if name in ("store", "st"):
            self._emit("store", *(self._value(n)[0] for n in values), order=order)
            return "0", "int"
        if name == "compare_exchange_strong":
            place, expected = self._value(values[0])[0], self._find(values[1].expr.name)
            found, _ = self._access("exchange", "uint", place, expected.text, self._value(values[2])[0], order=order)
            swapped = self._temporary("bool", f"{found} == {expected.text}")
            self._set(expected, found)
            return swapped.text, "bool"
        operator = {"add": "+", "sub": "-", "or": "|", "and": "&", "red": "+", "xor": "^"}[name]
        return self._access("update", "uint", *(self._value(n)[0] for n in values), repr(operator), order=order)

    def _inlined(self, function: Any, nodes: list[Any]) -> tuple[str, str]:
        kind = self._type(function.decl.type.type)
        result = None if kind == "void" else self._temporary(kind)
        scope: dict[str, _Name] = {}
        for parameter, node in zip(function.decl.type.args.params, nodes, strict=True):
            declared = self._type(parameter.type)
            if declared in self._structures:
                scope[parameter.name] = self._find(node.name)
            elif isinstance(node, c_ast.UnaryOp) and node.op == "&" and not self._find(node.expr.name).region:
                scope[parameter.name] = _Name("", declared, fields={"*": self._find(node.expr.name)})
            else:
                text, _ = self._value(node)
                self._scopes.append({})
                scope[parameter.name] = self._declare(parameter.name, declared)
                self._scopes.pop()
                self._set(scope[parameter.name], text)
        scopes, self._scopes = self._scopes, [self._scopes[0], scope]
        self._returns.append((result, []))
        self._run(function.body)
        self._land(self._returns.pop()[1])
        self._scopes = scopes
        return (result.text, kind) if result else ("0", "int")


def _flags(node: Any) -> Iterator[str]:
    """The memory that a barrier orders."""
    if isinstance(node, c_ast.BinaryOp):
        yield from (*_flags(node.left), *_flags(node.right))
    elif node.name in ("CLK_GLOBAL_MEM_FENCE", "CLK_LOCAL_MEM_FENCE"):
        yield "local" if "LOCAL" in node.name else "global"


def _forget_dead(code: list[Instruction]) -> None:
    """Note for each access which registers are not read after it before they are set."""
    used = [{int(n) for text in i.arguments for n in re.findall(r"r\[(\d+)\]", text)} for i in code]
    live = [set[int]() for _ in (*code, None)]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(code))):
            after = _live_after(code, live, number)
            before = (after - {code[number].result}) | used[number]
            if before != live[number]:
                live[number], changed = before, True
    everything = set[int]().union(*used, *({i.result} for i in code if i.result is not None))
    for number, instruction in enumerate(code):
        if instruction.kind not in ("set", "branch"):
            instruction.dead = tuple(sorted(everything - _live_after(code, live, number)))


def _live_after(code: list[Instruction], live: list[set[int]], number: int) -> set[int]:
    instruction = code[number]
    follows = live[number + 1] if instruction.kind != "end" and instruction.arguments != ("False",) else set()
    return follows | (live[instruction.target] if instruction.kind == "branch" else set())
