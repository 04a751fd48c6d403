"""The cache gives back equal compilations, and takes nothing else for one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.targets import CPU
from tflgpu.artifact.artifact import Artifact, DevicePartition
from tflgpu.artifact.records import LONG, Blob, decode, encode
from tflgpu.compiler import compile_model
from tflgpu.options import Options

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"


@dataclass(frozen=True)
class Leaf:
    name: str
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Twig:
    bytes: bytes
    size: float


@dataclass(frozen=True)
class Tree:
    pairs: tuple[tuple[int, Leaf], ...]
    either: Leaf | Twig | None
    flags: tuple[bool, ...]


@dataclass(frozen=True)
class Array:
    data: NDArray[Any] | None


leaves = st.builds(Leaf, st.text(), st.sampled_from(["a", "b"]))
twigs = st.builds(Twig, st.binary(), st.floats(allow_nan=False))
trees = st.builds(
    Tree,
    st.lists(st.tuples(st.integers(), leaves)).map(tuple),
    st.one_of(leaves, twigs, st.none()),
    st.lists(st.booleans()).map(tuple),
)


def through_json(value: object) -> tuple[Any, list[Blob]]:
    blobs: list[Blob] = []
    return json.loads(json.dumps(encode(value, blobs))), blobs


@given(trees)
def test_records_come_back_equal(tree: Tree) -> None:
    assert decode(Tree, *through_json(tree)) == tree


@pytest.mark.parametrize("text", ["", "x" * (LONG - 1), '"\\n' * LONG, "\u00e4" * LONG])
def test_long_texts_lie_beside_the_json(text: str) -> None:
    data, blobs = through_json(Leaf(text))
    assert decode(Leaf, data, blobs) == Leaf(text)
    assert len(blobs) == (len(text) >= LONG)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "int64"])
def test_arrays_come_back_as_views(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    data, blobs = through_json(Array(array))
    restored = decode(Array, data, blobs).data
    assert restored is not None and restored.dtype == dtype and np.shares_memory(restored, blobs[0])
    np.testing.assert_array_equal(restored, array)


def test_an_artifact_comes_back_equal() -> None:
    (artifact,) = compile_model(DIGITS.read_bytes(), Options(), CPU)
    data, blobs = through_json(artifact)
    restored = decode(Artifact, data, blobs)
    assert restored == artifact
    for part, original in zip(restored.partitions, artifact.partitions, strict=True):
        assert isinstance(part, DevicePartition) and isinstance(original, DevicePartition)
        for buffer, expected in zip(part.executable.buffers, original.executable.buffers, strict=True):
            np.testing.assert_array_equal(buffer.data, expected.data)


@pytest.mark.parametrize(
    "damage",
    [
        {"pairs": [[1, {"name": "x"}]]},
        {"pairs": [[1]]},
        {"pairs": 7},
        {"either": {"is": "Root"}},
        {"either": "leaf"},
        {"flags": ["yes"]},
        {"pairs": [["one", {"is": "Leaf", "name": "x", "kind": "a"}]]},
        {"pairs": [[1, {"is": "Leaf", "name": "x", "kind": "c"}]]},
        {"either": {"is": "Twig", "bytes": {"blob": 3}, "size": 1.0}},
        {"pairs": [[1, {"is": "Leaf", "name": {"blob": 3}, "kind": "a"}]]},
    ],
    ids=lambda damage: next(iter(damage.items()))[0] + "-" + str(len(str(damage))),
)
def test_other_data_is_refused(damage: dict[str, Any]) -> None:
    data, blobs = through_json(Tree(((1, Leaf("x")),), None, (True,)))
    with pytest.raises((KeyError, TypeError, ValueError, IndexError)):
        decode(Tree, data | damage, blobs)
