"""A model over the rows of columns: every row gets what it would get alone."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.batch.models import ROW, check, columns, exponentials
from tests.frontend.stateful_models import sum_of_inputs
from tests.support.models import Builder
from tflgpu import CacheFiles, Interface, Options, Shapes
from tflgpu.batch import Predictor


def options(device_name: str, batch: int | None = None) -> Options:
    return Options(device=device_name, precision="fp32", shapes=Shapes(batch=batch))


@pytest.mark.parametrize("count", [1, 4, 9])
def test_rows_that_are_left_over_get_the_same_results(count: int, device_name: str) -> None:
    given = columns(count)
    predictor = Predictor(exponentials(), options(device_name, batch=4))
    got = predictor(given)
    check(got, given)
    for row in range(count):
        (alone,) = predictor({name: column[row : row + 1] for name, column in given.items()})["y"]
        np.testing.assert_array_equal(alone, got["y"][row])


def test_without_rows_there_are_no_results(device_name: str) -> None:
    got = Predictor(exponentials(), options(device_name, batch=4))(columns(0))
    assert {name: (column.shape, column.dtype) for name, column in got.items()} == {
        "y": ((0, *ROW), np.float32),
        "z": ((0, *ROW), np.float32),
    }


def test_a_file_may_declare_several_rows(device_name: str) -> None:
    given = columns(5)
    check(Predictor(exponentials(rows=3), options(device_name))(given), given)


def test_free_rows_go_by_the_largest_batch(device_name: str) -> None:
    predictor = Predictor(exponentials(free=True), options(device_name))
    for count in (3, 5, 2):
        given = columns(count)
        check(predictor(given), given)
    assert sorted(shapes[0][0] for shapes in predictor.model._runner.instances) == [1, 3, 5]


def test_other_columns_pass_through(device_name: str) -> None:
    given = columns(3)
    renamed = {"pixels": given["x"], "w": given["w"], "path": np.array(["a", "b", "c"], object)}
    got = Predictor(exponentials(), options(device_name), columns={"x": "pixels"})(renamed)
    assert list(got) == ["path", "y", "z"]
    assert list(got["path"]) == ["a", "b", "c"]
    check(got, given)


def test_rows_may_be_objects_and_flat(device_name: str) -> None:
    given = columns(3)
    rows = np.empty(3, object)
    rows[:] = list(given["x"])
    check(Predictor(exponentials(), options(device_name))({"x": rows, "w": given["w"].reshape(3, -1)}), given)


def test_state_does_not_reach_the_next_row(device_name: str) -> None:
    data = sum_of_inputs()
    predictor = Predictor(data, options(device_name))
    (info,) = predictor.model.inputs
    row = np.random.default_rng(0).normal(size=info.shape).astype(info.dtype)
    first = predictor({info.name: row})
    again = predictor({info.name: np.concatenate([row, row])})
    for name, column in first.items():
        np.testing.assert_array_equal(again[name], np.concatenate([column, column]))


def test_columns_that_do_not_fit_are_named(device_name: str) -> None:
    predictor = Predictor(exponentials(), options(device_name))
    given = columns(3)
    with pytest.raises(ValueError, match=r"no column 'w' for input 'w'; there are \['x'\]"):
        predictor({"x": given["x"]})
    with pytest.raises(ValueError, match=r"different numbers of rows: \{'x': 3, 'w': 2\}"):
        predictor({"x": given["x"], "w": given["w"][:2]})
    with pytest.raises(ValueError, match=r"rows of column 'x' have shape \[3, 2, 1\]; \[2, 3\] was expected"):
        predictor({"x": given["x"].reshape(3, 3, 2, 1), "w": given["w"]})
    with pytest.raises(ValueError, match=r"columns \['y'\] have the names of outputs"):
        predictor(given | {"y": np.zeros(3)})
    ragged = np.empty(3, object)
    ragged[:] = [np.zeros(size, np.float32) for size in (6, 6, 5)]
    with pytest.raises(ValueError, match="rows of column 'w' differ in shape"):
        predictor({"x": given["x"], "w": ragged})
    with pytest.raises(ValueError, match=r"columns names \['v'\]; the model has the inputs \['x', 'w'\]"):
        Predictor(exponentials(), options(device_name), columns={"v": "x"})


def test_outputs_without_rows_are_refused(device_name: str) -> None:
    builder = Builder()
    x = builder.input((1, *ROW), name="x")
    y = builder.add("RESHAPE", [x, builder.ints(ROW)], ROW, name="y", new_shape=ROW)
    with pytest.raises(ValueError, match=r"no first axis of rows in common: 'x' \[1, 2, 3\], 'y' \[2, 3\]"):
        Predictor(builder.finish([y]), options(device_name))


def test_options_reach_the_model(device_name: str) -> None:
    """Bytes for a float input, and what Ray pickles."""
    chosen = pickle.loads(
        pickle.dumps(Options(device=device_name, precision="fp32", interface=Interface(uint8_inputs={"x": (0, 255)})))
    )
    given = columns(2)
    frames = np.arange(12, dtype=np.uint8).reshape(2, *ROW)
    got = Predictor(exponentials(), chosen)({"x": frames, "w": given["w"]})
    np.testing.assert_allclose(got["y"], np.exp(frames / 255.0), rtol=1e-5)


def test_a_second_predictor_starts_warm(device_name: str, tmp_path: object) -> None:
    chosen = Options(device=device_name, shapes=Shapes(batch=2), cache_files=CacheFiles(path=str(tmp_path)))
    cold, warm = (Predictor(exponentials(), chosen).model.seconds for _ in range(2))
    assert "plan" in cold and "plan" not in warm
