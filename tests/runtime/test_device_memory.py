"""Inputs and outputs that live on the device: bound where kernels touch nothing else, copied there elsewhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import tflgpu
from tests.runtime.device_arrays import (
    CONFIGURATIONS,
    SHAPES,
    Array,
    arrays,
    fresh_outputs,
    on_device,
    three_of_each,
)
from tests.support.arrays import assert_equal
from tests.support.models import Builder
from tflgpu.runtime.executors.executor import Executor


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what was copied on the device from here on."""
    sizes: list[int] = []
    copy = Executor._copy

    def record(self: Executor, *arguments: object) -> None:
        sizes.append(arguments[2])
        copy(self, *arguments)

    monkeypatch.setattr(Executor, "_copy", record)
    return sizes


def test_there_and_back_and_everything_between(model: tflgpu.CompiledModel) -> None:
    """Any mixture of host and device, one after another, gives the host's bits."""
    for seed in range(8):
        given = arrays(seed)
        expected = model.run(given)
        moved, targets = on_device(model, given), fresh_outputs(model)
        inputs = {name: moved[name] if seed >> i & 1 else given[name] for i, name in enumerate(given)}
        chosen = {name: targets[name] for i, name in enumerate(targets) if seed >> (2 - i) & 1}
        results = model.run(inputs, chosen)
        assert results.keys() == expected.keys() - chosen.keys()
        assert_equal(results | {name: array.get() for name, array in chosen.items()}, expected)


def test_only_what_kernels_reach_beyond_is_copied(model: tflgpu.CompiledModel, copied: list[int]) -> None:
    model.run(on_device(model, arrays(0)), fresh_outputs(model))
    _, vec4s, row = (4 * np.prod(shape) for shape in SHAPES)
    assert sorted(copied) == ([row, row, vec4s, vec4s] if model.options.execution.kernels == "cpu" else [row])


def within(model: tflgpu.CompiledModel, value: Array, begin: int) -> cl_array.Array:
    """``value`` from an element of a buffer on, among sevens."""
    pool = np.full(1024, 7, np.float32)
    pool[begin : begin + value.size] = value.reshape(-1)
    data = cl_array.to_device(model.queue, pool).base_data
    return cl_array.Array(model.queue, value.shape, np.float32, data=data, offset=begin * value.itemsize)


@pytest.mark.parametrize("begin", [0, 1, 16, 64])
def test_arrays_inside_of_buffers(begin: int, model: tflgpu.CompiledModel) -> None:
    """An array may begin at any element; what lies around it is left alone."""
    given = arrays(1)
    expected = model.run(given)
    targets = {name: within(model, np.zeros_like(value), begin) for name, value in expected.items()}
    assert model.run({name: within(model, value, begin) for name, value in given.items()}, targets) == {}
    assert_equal({name: a.get() for name, a in targets.items()}, expected)
    for target in targets.values():
        around = np.empty(1024, np.float32)
        cl.enqueue_copy(model.queue, around, target.base_data)
        assert np.all(np.delete(around, np.s_[begin : begin + target.size]) == 7)


def test_arrays_may_be_elsewhere_in_every_run(model: tflgpu.CompiledModel) -> None:
    """At the same place of another buffer, at another place, on the host in between."""
    given = arrays(6)
    expected = model.run(given)
    for begin in (16, 16, 64, 64, None, 64, 0, 16):
        if begin is None:
            assert_equal(model.run(given), expected)
            continue
        targets = {name: within(model, np.zeros_like(value), begin) for name, value in expected.items()}
        model.run({name: within(model, value, begin) for name, value in given.items()}, targets)
        assert_equal({name: a.get() for name, a in targets.items()}, expected)


def test_plain_buffers(model: tflgpu.CompiledModel) -> None:
    given = arrays(2)
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    buffers = {name: cl.Buffer(model.queue.context, flags, hostbuf=a) for name, a in given.items()}
    assert_equal(model.run(buffers), model.run(given))


def test_an_output_may_take_an_inputs_place(model: tflgpu.CompiledModel) -> None:
    given = arrays(3)
    moved = on_device(model, given)
    model.run(moved, {"y0": moved["x0"], "y1": moved["x1"], "y2": moved["x2"]})
    expected = model.run(given)
    assert_equal({f"y{i}": moved[f"x{i}"].get() for i in range(3)}, expected)


@pytest.mark.parametrize("shift", [0, 1024])
def test_an_output_may_take_a_part_of_an_inputs_place(shift: int, device_name: str) -> None:
    """Both are sub-buffers of one buffer; each element of the output is read of another place of the input."""
    builder = Builder()
    x = builder.input((64, 64), name="x")
    model = builder.finish([builder.add("TRANSPOSE", [x, builder.ints([1, 0])], name="y")])
    options = tflgpu.Options(device=device_name, precision="fp32", execution=CONFIGURATIONS["gpu kernels"])
    with tflgpu.compile(model, options) as compiled:
        value = np.arange(4096, dtype=np.float32).reshape(64, 64)
        whole = cl.Buffer(compiled.queue.context, cl.mem_flags.READ_WRITE, value.nbytes + shift)
        cl.enqueue_copy(compiled.queue, whole, value)
        result = whole.get_sub_region(shift, value.nbytes)
        compiled.run({"x": whole.get_sub_region(0, value.nbytes)}, {"y": result})
        found = np.empty_like(value)
        cl.enqueue_copy(compiled.queue, found, result)
        np.testing.assert_array_equal(found, value.T)


def test_arrays_of_another_queue_are_waited_for(model: tflgpu.CompiledModel) -> None:
    given = arrays(4)
    expected = model.run(given)
    other, gate = cl.CommandQueue(model.queue.context), cl.UserEvent(model.queue.context)
    moved = {name: cl_array.to_device(other, np.zeros_like(a)) for name, a in given.items()}
    for name, array in moved.items():
        value = cl_array.to_device(model.queue, given[name])
        # A blocking write may end before the device has the value: only its event says when another queue may read it.
        ready = [gate, *value.events]
        array.add_event(cl.enqueue_copy(other, array.base_data, value.base_data, wait_for=ready))
    other.flush()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(model.run, moved)
        with pytest.raises(TimeoutError):
            result.result(timeout=0.1)
        gate.set_status(cl.command_execution_status.COMPLETE)
        assert_equal(result.result(), expected)


def test_threads_share_a_model(model: tflgpu.CompiledModel) -> None:
    def run(seed: int) -> dict[str, Array]:
        targets = fresh_outputs(model)
        model.run(on_device(model, arrays(seed)) if seed % 2 else arrays(seed), targets)
        return {name: a.get() for name, a in targets.items()}

    with ThreadPoolExecutor(4) as pool:
        for seed, found in enumerate(pool.map(run, range(16))):
            assert_equal(found, model.run(arrays(seed)))


def test_models_on_one_queue_pass_arrays_on(device_name: str) -> None:
    options = tflgpu.Options(precision="fp32", device="ignored beside a queue")
    first = tflgpu.compile(three_of_each(), tflgpu.Options(device=device_name, precision="fp32"))
    second = tflgpu.compile(three_of_each(), options, queue=first.queue)
    assert second.device == first.device and second.queue == first.queue
    between = fresh_outputs(first)
    first.run(arrays(5), between)
    result = second.run(list(between.values()))
    host = first.run(arrays(5))
    assert_equal(result, first.run(list(host.values())))
    with pytest.raises(TypeError, match="cannot be pickled"):
        second.__reduce__()


def test_with_operators_on_the_cpu_arrays_go_through_the_host(device_name: str) -> None:
    pytest.importorskip("ai_edge_litert")
    options = tflgpu.Options(device=device_name, precision="fp32", cpu_part=tflgpu.CpuPart(operators=[1]))
    with pytest.warns(tflgpu.FallbackWarning):
        model = tflgpu.compile(three_of_each(), options)
    expected = model.run(arrays(6))
    targets = fresh_outputs(model)
    rest = model.run(on_device(model, arrays(6)), {name: targets[name] for name in ("y1", "y2")})
    assert_equal(rest | {name: targets[name].get() for name in ("y1", "y2")}, expected)


def test_free_axes_go_by_the_arrays_shape(device_name: str) -> None:
    builder = Builder()
    x = builder.input((1, 4), shape_signature=(-1, 4), name="x")
    y = builder.add("ABS", [x], (1, 4), name="y")
    model = tflgpu.compile(builder.finish([y]), tflgpu.Options(device=device_name, precision="fp32"))
    value = -np.arange(12, dtype=np.float32).reshape(3, 4)
    target = cl_array.zeros(model.queue, (3, 4), np.float32)
    model.run(cl_array.to_device(model.queue, value), {"y": target})
    np.testing.assert_array_equal(target.get(), -value)
    with pytest.raises(ValueError, match=r"output 'y' has shape \[3, 4\]; \[2, 4\] was expected"):
        model.run(value[:2], {"y": target})


def test_variables_live_on(device_name: str) -> None:
    """An output that is a variable's next value is copied out of it, and the variable keeps it."""
    builder, initial = Builder(), Builder()
    shape = (1, 4, 4, 4)

    def handle(of: Builder) -> int:
        return of.add("VAR_HANDLE", [], (), "resource", container="", shared_name="sum")

    x = builder.input(shape, name="x")
    initial.op("ASSIGN_VARIABLE", [handle(initial), initial.constant(np.zeros(shape, np.float32))], [])
    builder.op("CALL_ONCE", [], [], {"init_subgraph_index": builder.subgraph(initial)})
    old = builder.add("READ_VARIABLE", [handle(builder)], shape)
    new = builder.add("ADD", [old, x], shape, name="y")
    builder.op("ASSIGN_VARIABLE", [handle(builder), new], [])
    for choice in ("launch", "persistent"):
        options = tflgpu.Options(
            device=device_name, precision="fp32", execution=tflgpu.Execution(kernels="gpu", executor=choice)
        )
        model = tflgpu.compile(builder.finish([new]), options)
        target = cl_array.zeros(model.queue, shape, np.float32)
        given = cl_array.to_device(model.queue, np.ones(shape, np.float32))
        for times in range(1, 4):
            model.run(given, {"y": target})
            np.testing.assert_array_equal(target.get(), times)
        np.testing.assert_array_equal(model.run(given)["y"], 4)


def test_what_does_not_fit_says_why(model: tflgpu.CompiledModel) -> None:
    queue, given = model.queue, arrays(0)

    def refuses(message: str, **changed: object) -> None:
        with pytest.raises(ValueError, match=message):
            model.run(given | changed)

    flags = cl.mem_flags.READ_WRITE
    refuses("input 'x2' is a buffer of 20 bytes; 24 were expected", x2=cl.Buffer(queue.context, flags, 20))
    refuses(r"input 'x2' has shape \[6, 1\]; \[1, 6\] was", x2=cl_array.zeros(queue, (6, 1), np.float32))
    refuses("input 'x2' has element type float64; float32 was", x2=cl_array.zeros(queue, (1, 6), np.float64))
    refuses("input 'x2' is not contiguous", x2=cl_array.zeros(queue, (1, 12), np.float32)[:, ::2])
    elsewhere = cl.Context([model.device.handle])
    refuses("input 'x2' belongs to another OpenCL context", x2=cl.Buffer(elsewhere, flags, 24))
    with pytest.raises(TypeError, match="output 'y2' is a list; an array was expected"):
        model.run(given, {"y2": [[0.0] * 6]})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"outputs named \['z'\] were given; the model has \['y0', 'y1', 'y2'\]"):
        model.run(given, {"z": cl_array.zeros(queue, (1, 6), np.float32)})
    kept = on_device(model, given)
    model.close()
    with pytest.raises(ValueError, match="closed"):
        model.run(kept)


def test_queues_that_do_not_fit(device_name: str) -> None:
    handle = next(d.handle for d in tflgpu.devices() if d.platform == device_name)
    context, unordered = cl.Context([handle]), cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    queue = cl.CommandQueue(context, properties=unordered)
    with pytest.raises(ValueError, match="out of order"):
        tflgpu.compile(three_of_each(), queue=queue)
