"""Each option is declared once: groups, checks, flat names and documentation agree."""

from __future__ import annotations

import pickle
import re
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from inspect import cleandoc

import pytest

import tflgpu
from tflgpu.checking.option_declarations import Group, choices_of, flat_names, grouped
from tflgpu.options import Options, options_of

GROUPS = [each.type for each in fields(Options) if isinstance(each.type, type) and issubclass(each.type, Group)]


def test_groups_are_where_they_say() -> None:
    assert [group.place for group in GROUPS] == [each.name for each in fields(Options)][-len(GROUPS) :]
    assert all(is_dataclass(group) and getattr(tflgpu, group.__name__) is group for group in GROUPS)


def test_newcomers_see_five_options() -> None:
    alone = [each.name for each in fields(Options)][: -len(GROUPS)]
    assert alone == ["precision", "device", "threads", "fallback", "cache"]


@pytest.mark.parametrize("kind", [Options, *GROUPS])
def test_docstrings_describe_all_options_in_order(kind: type) -> None:
    described = re.findall(r"^ {4}(\w+): ", cleandoc(kind.__doc__ or ""), re.MULTILINE)
    assert described == [each.name for each in fields(kind)]  # type: ignore[arg-type]


def test_every_option_has_a_sentence_and_a_check() -> None:
    for place in flat_names(Options).values():
        assert re.fullmatch(r"[A-Za-z].*\.", place.declared.help, re.DOTALL)
        assert place.declared.check or choices_of(place.field), place.path
        assert (place.default is None) <= (place.declared.absent is not None), place.path


def test_values_by_flat_names() -> None:
    values = {"precision": "fp16", "batch": 4, "input_shapes": {"x": (2, 3)}, "cpu_ops": ["ADD"]}
    assert options_of(values) == Options(
        precision="fp16",
        shapes=tflgpu.Shapes(batch=4, inputs={"x": (2, 3)}),
        cpu_part=tflgpu.CpuPart(operators=["ADD"]),
    )
    defaults = {name: place.default for name, place in flat_names(Options).items()}
    assert options_of(defaults) == Options()
    with pytest.raises(KeyError):
        grouped(Options, {"bach": 4})


def test_options_are_values() -> None:
    chosen = Options(cache="off", shapes=tflgpu.Shapes(batch=2, inputs={"x": (2, 3)}))
    assert pickle.loads(pickle.dumps(chosen)) == chosen == eval(repr(chosen), vars(tflgpu))
    assert hash(chosen) == hash(replace(chosen)) and {chosen: 1}[replace(chosen)] == 1
    assert replace(chosen, cache="read").shapes == chosen.shapes
    with pytest.raises(FrozenInstanceError):
        chosen.shapes.batch = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional"):
        tflgpu.Shapes(3)  # type: ignore[misc]


def test_a_choice_with_a_hyphen_is_accepted_with_a_word() -> None:
    with pytest.warns(UserWarning, match="^Options.precision 'fp16-fast' is spelled 'fp16_fast'$"):
        assert Options(precision="fp16-fast").precision == "fp16_fast"  # type: ignore[arg-type]
