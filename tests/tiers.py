"""The tier that needs no OpenCL device: ``pytest -m "not device"``.

Every test has the marker ``device``, except those of the modules below. In these, the tests have it that ask for a
fixture of a device, and those that are marked by hand. A test without the marker that looks for a device fails
(:func:`without_devices`), so that the list is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pyopencl as cl
import pytest

from tflgpu.runtime.opencl import devices

ROOT = Path(__file__).parents[1]

# Modules of tests, and folders of them.
WITHOUT_DEVICE = (
    "tests/architecture",
    "tests/artifact/cache",
    "tests/artifact/test_bundle_proofs.py",
    "tests/artifact/test_records.py",
    "tests/batch/test_gathering.py",
    "tests/batch/test_own_device.py",
    "tests/batch/test_row_files.py",
    "tests/checking",
    "tests/cli/running/test_compile_options.py",
    "tests/cli/terminal/test_completion.py",
    "tests/cli/test_advice.py",
    "tests/cli/test_cli.py",
    "tests/cli/test_hostile_names.py",
    "tests/cli/test_inspect.py",
    "tests/cli/test_show.py",
    "tests/cli/test_wrong_input.py",
    "tests/compiled_model/test_same_names.py",
    "tests/conformance",
    "tests/drivers/test_mirror.py",
    "tests/examples/test_example_pages.py",
    "tests/fallback/test_submodel.py",
    "tests/frontend/control_flow/test_loops.py",
    "tests/frontend/test_clamps.py",
    "tests/frontend/test_input_shapes.py",
    "tests/frontend/test_limits.py",
    "tests/frontend/test_runtime_bounds.py",
    "tests/frontend/test_state_lowering.py",
    "tests/graph/test_deferred.py",
    "tests/graph/test_gather_rows.py",
    "tests/graph/test_layout.py",
    "tests/graph/test_merge_movements.py",
    "tests/graph/test_merge_products.py",
    "tests/inputs",
    "tests/interpreter/test_delegate.py",
    "tests/interpreter/test_misuse.py",
    "tests/interpreter/test_same_methods.py",
    "tests/kernels/cpu/test_bands.py",
    "tests/kernels/cpu/test_deep_convolutions.py",
    "tests/kernels/cpu/test_dense_layers.py",
    "tests/kernels/cpu/test_integer_storage.py",
    "tests/kernels/gpu/test_kn2row.py",
    "tests/kernels/gpu/test_shared_sums.py",
    "tests/kernels/gpu/test_tuned_groups.py",
    "tests/kernels/gpu/test_width_blocking.py",
    "tests/kernels/portable/test_long_rows.py",
    "tests/kernels/test_attention.py",
    "tests/kernels/test_branches.py",
    "tests/kernels/test_demand.py",
    "tests/kernels/test_fuse_excitations.py",
    "tests/kernels/test_fuse_pairs.py",
    "tests/kernels/test_half_arithmetic.py",
    "tests/kernels/test_matrix_products.py",
    "tests/kernels/test_matrix_units.py",
    "tests/kernels/test_shared_functions.py",
    "tests/kernels/test_storage.py",
    "tests/kernels/test_template_bytecode.py",
    "tests/language/test_answers.py",
    "tests/language/test_containers.py",
    "tests/language/test_conversations.py",
    "tests/language/test_description.py",
    "tests/language/test_metadata.py",
    "tests/language/test_openai_server.py",
    "tests/language/test_sessions.py",
    "tests/language/test_templates.py",
    "tests/language/test_tokenizers.py",
    "tests/measure/test_probes.py",
    "tests/measure/test_storage_search.py",
    "tests/measure/test_tuned_fusions.py",
    "tests/model/test_writer.py",
    "tests/model/test_writer_errors.py",
    "tests/ops/test_new_operator.py",
    "tests/ops/test_reference.py",
    "tests/page/test_drawing.py",
    "tests/plan/test_arena.py",
    "tests/plan/test_barrier_intervals.py",
    "tests/plan/test_caches.py",
    "tests/plan/test_gpu_generations.py",
    "tests/plan/test_group_sizes.py",
    "tests/plan/test_large_sums.py",
    "tests/plan/test_orders.py",
    "tests/plan/test_planned_limits.py",
    "tests/plan/test_program_parts.py",
    "tests/plan/test_stored_grids.py",
    "tests/plan/test_whole_numbers.py",
    "tests/runtime/drivers/test_answers.py",
    "tests/runtime/drivers/test_cubin.py",
    "tests/runtime/drivers/test_libraries.py",
    "tests/runtime/drivers/test_missing_drivers.py",
    "tests/runtime/persistent/test_persistent.py",
    "tests/runtime/test_executor_choice.py",
    "tests/runtime/test_integer_units.py",
    "tests/runtime/test_interruptible.py",
    "tests/runtime/test_quirks.py",
    "tests/runtime/test_transfer.py",
    "tests/runtime/test_tuning.py",
    "tests/safety/test_arguments.py",
    "tests/safety/test_foreign_types.py",
    "tests/safety/test_guarded_process.py",
    "tests/safety/test_hostile_models.py",
    "tests/safety/test_internal_faults.py",
    "tests/safety/test_long_models.py",
    "tests/safety/test_planted_faults.py",
    "tests/schedules",
)

# Folders of tests whose programs are compiled as users compile them. The compiler does not optimize those of others.
OPTIMIZED = (
    "tests/acceptance",
    "tests/batch",
    "tests/docs",
    "tests/drivers",
    "tests/examples",
    "tests/language",
    "tests/runtime/claiming",
    "tests/runtime/drivers",
    "tests/runtime/persistent",
)

# A test that asks for one of these fixtures, itself or through another fixture, uses a device.
DEVICE_FIXTURES = {"device", "device_name", "emulation", "half_device"}

# No file there names a driver. Processes that a test starts find no device by it.
NO_DRIVERS = {"OCL_ICD_VENDORS": "/nonexistent"}


def mark_tests(items: Iterable[pytest.Item]) -> None:
    """Give ``device`` to all tests that may use one, and ``unoptimized`` to those whose programs need no optimizer."""
    without_device, optimized = ({str(ROOT / name) for name in names} for names in (WITHOUT_DEVICE, OPTIMIZED))
    for item in items:
        paths = {str(item.path), *map(str, item.path.parents)}
        if without_device.isdisjoint(paths) or not DEVICE_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.device)
        has_marker = any(map(item.get_closest_marker, ("optimized", "compiles")))
        if optimized.isdisjoint(paths) and not has_marker:
            item.add_marker(pytest.mark.unoptimized)


@contextmanager
def without_devices() -> Iterator[None]:
    """While this is open, looking for OpenCL devices fails the test, and processes that it starts find none."""

    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        pytest.fail("this test uses OpenCL: mark it `device`, or take its module out of tests/tiers.py")

    with pytest.MonkeyPatch.context() as patch:
        # The devices that tests with the marker found in this process are not seen.
        patch.setattr(devices, "_devices", cache(devices._devices.__wrapped__))
        for name in ("get_platforms", "Context"):
            patch.setattr(cl, name, refuse)
        for name, value in NO_DRIVERS.items():
            patch.setenv(name, value)
        yield
