"""A part of a file has all that it refers to by number, under new numbers, and nothing else."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.support.models import Builder
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.fallback.submodel import Extract
from tflgpu.model.reader import read_model
from tflgpu.model.writer import ModelBuilder

# Every field of the schema that may be a number of another table. Those of `Extract`: tensors, buffers and subgraphs.
FOLLOWED = {
    *("OperatorT.inputs", "OperatorT.outputs", "OperatorT.intermediates", "SubGraphT.inputs", "SubGraphT.outputs"),
    *("BlockwiseQuantizationT.scales", "BlockwiseQuantizationT.zeroPoints"),
    *("MultiAxisQuantizationT.scales", "MultiAxisQuantizationT.zeroPoints"),
    "TensorT.buffer",
    *("CallOptionsT.subgraph", "CallOnceOptionsT.initSubgraphIndex"),
    *("IfOptionsT.thenSubgraphIndex", "IfOptionsT.elseSubgraphIndex"),
    *("WhileOptionsT.condSubgraphIndex", "WhileOptionsT.bodySubgraphIndex"),
    *("StablehloWhileOptionsT.condSubgraphIndex", "StablehloWhileOptionsT.bodySubgraphIndex"),
    *("StablehloReduceOptionsT.bodySubgraphIndex", "StablehloReduceWindowOptionsT.bodySubgraphIndex"),
    *("StablehloSortOptionsT.comparatorSubgraphIndex", "StablehloScatterOptionsT.updateComputationSubgraphIndex"),
    *("StablehloCaseOptionsT.branchSubgraphIndices", "StablehloCustomCallOptionsT.calledComputations"),
    "StableHLOCompositeOptionsT.decompositionSubgraphIndex",
}

# Operator codes stay as they are; what concerns the whole file is left out; vectors of tables hold these themselves.
STAY = {"OperatorT.opcodeIndex", "ModelT.subgraphs", "ModelT.buffers", "SubGraphT.tensors", "TensorT.variantTensors"}
LEFT_OUT = {
    *("ModelT.metadataBuffer", "MetadataT.buffer", "SignatureDefT.inputs", "SignatureDefT.outputs"),
    *("SignatureDefT.subgraphIndex", "TensorMapT.tensorIndex"),
    *("OperatorT.debugMetadataIndex", "SubGraphT.debugMetadataIndex"),
    *("TensorT.externalBuffer", "ModelT.externalBuffers", "ModelT.externalBufferGroups"),  # other files
}

# Fields with such names that are no numbers of tables.
NO_REFERENCES = {
    *("QuantizationParametersT.zeroPoint", "DimensionMetadataT.arrayIndices", "DimensionMetadataT.arrayIndicesType"),
    *("StablehloGatherOptionsT.startIndexMap", "StablehloGatherOptionsT.indexVectorDim"),
    *("StablehloGatherOptionsT.indicesAreSorted", "StablehloScatterOptionsT.indicesAreSorted"),
    *("StablehloScatterOptionsT.indexVectorDim", "StablehloScatterOptionsT.uniqueIndices"),
    *("StablehloSliceOptionsT.startIndices", "StablehloSliceOptionsT.limitIndices"),
    *("UnidirectionalSequenceLSTMOptionsT.diagonalRecurrentTensors", "SparseToDenseOptionsT.validateIndices"),
}

TELLING = re.compile(
    "index|indices|subgraph|buffer|tensor|^scales$|zeropoint|computations|^inputs$|^outputs$|intermedi", re.I
)


def test_every_reference_of_the_schema_is_known() -> None:
    """Another one in a later schema has to be followed, too."""
    tables = ((n, c) for n, c in vars(schema).items() if n.endswith("T") and inspect.isclass(c))
    found = {f"{name}.{field}" for name, table in tables for field in vars(table()) if TELLING.search(field)}
    assert found == FOLLOWED | STAY | LEFT_OUT | NO_REFERENCES


def identity(size: int) -> ModelBuilder:
    """A subgraph that adds a constant of so many elements."""
    builder = Builder()
    x = builder.input((size,))
    builder.add("ADD", [x, builder.constant(np.full(size, size, np.float32))], (size,))
    return builder


def calling(code: str, fields: dict[str, Any], **options: Any) -> Any:
    """A file of four subgraphs, the third of which calls the fourth; the main one has an operator of ``code``."""
    builder = Builder()
    builder.constant(np.ones(500, np.float32))
    x = builder.input((5,))
    for size in (100, 5):
        builder.subgraph(identity(size), [1])
    inner = Builder()
    given = inner.input((5,))
    result = inner.add("CALL", [given], (5,), subgraph=2)
    builder.subgraph(inner, [result])
    builder.op("ABS", [x], [x])
    y = builder.add(code, [x], (5,), **options)
    file = unpacked(builder.finish([y]))
    operator = file.subgraphs[0].operators[1]
    for name, value in fields.items():
        setattr(operator.builtinOptions or operator.builtinOptions2, name, value)
    return file


@pytest.mark.parametrize(
    ("code", "field"),
    [("CALL", "subgraph"), ("STABLEHLO_COMPOSITE", "decompositionSubgraphIndex")],
)
def test_called_subgraphs_come_along_and_no_others(code: str, field: str) -> None:
    file = calling(code, {field: 3})
    plain = SimpleNamespace(aliases={}, operators=[SimpleNamespace(variables=(), handles=())] * 2)
    part = Extract(file, 0, cast(Any, plain), [1], [1], [2]).model
    options = part.subgraphs[0].operators[0].builtinOptions or part.subgraphs[0].operators[0].builtinOptions2
    assert getattr(options, field) == 1
    assert part.subgraphs[1].operators[0].builtinOptions.subgraph == 2
    assert [0 if b.data is None else len(b.data) for b in part.buffers] == [0, 20]
    assert (
        getattr(file.subgraphs[0].operators[1].builtinOptions2 or file.subgraphs[0].operators[1].builtinOptions, field)
        == 3
    )
    assert len(read_model(packed(part)).subgraphs) == 3


def test_scales_and_zero_points_of_blocks_come_along() -> None:
    builder = Builder()
    builder.constant(np.ones(300, np.float32))
    x, weights = builder.input((1, 32)), builder.constant(np.ones((4, 32), np.int8))
    builder.constant(np.ones(200, np.float32))
    scales = builder.constant(np.ones((4, 1), np.float16))
    y = builder.add("FULLY_CONNECTED", [x, weights, -1], (1, 4))
    file = unpacked(builder.finish([y]))
    details = schema.BlockwiseQuantizationT(scales=scales, zeroPoints=0, blockSize=32)
    file.subgraphs[0].tensors[weights].quantization = schema.QuantizationParametersT(
        details=details, detailsType=schema.QuantizationDetails.BlockwiseQuantization
    )
    part = Extract(file, 0, read_model(packed(file)).subgraphs[0], [0], [x], [y])
    found = part.tensor(weights).quantization.details
    assert (found.scales, found.zeroPoints) == (part.tensors[scales], 0)
    assert part.tensors == {-1: -1, 0: 0, x: 1, weights: 2, scales: 3, y: 4}
    assert details.scales == scales
