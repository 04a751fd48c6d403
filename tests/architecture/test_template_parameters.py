"""Each template's dataclass has the names that the template uses, no more and no fewer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import cache
from typing import TypeVar

import jinja2.meta
import pytest
from jinja2 import nodes

from tests.support.templates import parameters_of_templates
from tflgpu.codegen.environment import environment, template_folder
from tflgpu.kernels.kernel import Parameters

N = TypeVar("N", bound=nodes.Node)

# Names that every template sees, see tflgpu.codegen.render.
RENDERED = {"local_size", "value_type", "shuffles", "dst", "epilogue"}


PARAMETERS = parameters_of_templates()


@cache
def _parsed(name: str) -> nodes.Template:
    return environment().parse((template_folder() / name).read_text())


def _constant(node: nodes.Node) -> str:
    assert isinstance(node, nodes.Const)
    return str(node.value)


def _undeclared(body: Iterable[nodes.Node]) -> set[str]:
    """Names that statements use before they declare them, on some path."""
    template = nodes.Template(list(body), lineno=1)
    template.set_environment(environment())
    return jinja2.meta.find_undeclared_variables(template) - set(environment().globals)


def _called(body: list[nodes.Node], wanted: set[str]) -> list[nodes.Node]:
    """Statements without the macros that are neither ``wanted`` nor called by others."""
    macros = {node.name: node for node in body if isinstance(node, nodes.Macro)}
    called = (wanted | _undeclared(node for node in body if not isinstance(node, nodes.Macro))) & set(macros)
    while more := (_undeclared(macros[name] for name in called) & set(macros)) - called:
        called |= more
    return [node for node in body if not isinstance(node, nodes.Macro) or node.name in called]


def _found(statement: nodes.Node, kind: type[N]) -> Iterator[N]:
    """The nodes of a kind in a statement, itself included."""
    if isinstance(statement, kind):
        yield statement
    yield from statement.find_all(kind)


def _declared(body: Iterable[nodes.Node]) -> set[str]:
    """Names that statements declare anywhere, or have a default for."""
    found: set[str] = set()
    for statement in body:
        found |= {macro.name for macro in _found(statement, nodes.Macro)}
        found |= {name.name for name in _found(statement, nodes.Name) if name.ctx in ("store", "param")}
        for imported in _found(statement, nodes.FromImport):
            found |= {name if isinstance(name, str) else name[1] for name in imported.names}
        for asked in _found(statement, nodes.Filter):
            found |= {asked.node.name} if asked.name == "default" and isinstance(asked.node, nodes.Name) else set()
    return found


@cache
def _names(template: str, wanted: frozenset[str] | None = None) -> tuple[set[str], set[str]]:
    """The names that the statements of a template use and declare, with those that it imports with context.

    wanted: only these of its macros, and those that they call; by default all.
    """
    body = _parsed(template).body
    if wanted is not None:
        body = _called(body, set(wanted))
    used, declared = _undeclared(body), _declared(body)
    for imported in (found for statement in body for found in _found(statement, nodes.FromImport)):
        if imported.with_context:
            names = frozenset(name if isinstance(name, str) else name[0] for name in imported.names)
            more = _names(_constant(imported.template), names)
            used, declared = used | more[0], declared | more[1]
    return used, declared


def names_of(template: str) -> tuple[set[str], set[str]]:
    """The names that a template uses, and those of them that it has to be given, with the templates that it extends and
    imports.
    """
    chain = [template]
    while extends := next(_parsed(chain[-1]).find_all(nodes.Extends), None):
        chain.append(_constant(extends.template))
    used, declared = (set[str]().union(*found) for found in zip(*map(_names, chain), strict=True))
    return used, used - declared


@pytest.mark.parametrize("parameters", PARAMETERS, ids=lambda cls: cls.template)
def test_a_dataclass_has_what_its_template_uses(parameters: type[Parameters]) -> None:
    names = {field.name for field in fields(parameters)}
    used, wanted = names_of(f"{parameters.template}.cl.j2")
    assert wanted - RENDERED - names == set(), "the template wants what its dataclass has not"
    assert names - used - {"dirty"} == set(), "the dataclass has what its template does not use"


def test_no_template_has_two_dataclasses() -> None:
    templates = [cls.template for cls in PARAMETERS]
    assert len(templates) == len(set(templates)) > 50
