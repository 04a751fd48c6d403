"""The errors of every output over a folder of inputs, as TFLite's inference_diff counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import ClassVar

from tflgpu.api import CompiledModel
from tflgpu.evaluate.accuracy import Deviation, Errors
from tflgpu.evaluate.task import DEVICE, LITERT, Array, Row, Task
from tflgpu.model.tensor_info import TensorInfo


class Difference(Task):
    """A row keeps the errors of each output."""

    name: ClassVar[str] = "diff"
    antialias: ClassVar[bool] = True

    def positions(self, model: CompiledModel) -> tuple[int, ...]:
        """Return the places of all outputs.

        Args:
            model: The model that is compared.
        """
        return tuple(range(len(model.outputs)))

    def answers(self, outputs: Mapping[str, Sequence[Array]], infos: Sequence[TensorInfo]) -> Row:
        """Return the errors of each output beside LiteRT's.

        Args:
            outputs: All outputs by engine.
            infos: Those of the outputs.

        Raises:
            ValueError: The shapes of an output differ.
        """
        pairs = zip(outputs[LITERT], outputs[DEVICE], infos, strict=True)
        return {"errors": [asdict(Errors.of(expected, got, _quantum(info))) for expected, got, info in pairs]}


def deviations(rows: Sequence[Row], infos: Sequence[TensorInfo]) -> list[Deviation]:
    """Return the deviations of each output, over all rows.

    Args:
        rows: One for each file.
        infos: Those of the outputs.
    """
    found = [Deviation(_quantum(info)) for info in infos]
    for row in rows:
        for deviation, errors in zip(found, row["errors"], strict=True):
            deviation.include(Errors(**errors))
    return found


def _quantum(info: TensorInfo) -> float | None:
    return 1.0 if info.quantization else None
