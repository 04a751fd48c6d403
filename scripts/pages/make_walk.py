"""Two layers of MobileNetV1 at every stage: ``python -m scripts.pages.make_walk`` writes docs/internals/walk.md.

All listings come from compiling the model, for a target that is named on the page. No device is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.text import Text

from benchmarks.zoo import mobilenet_v1
from tflgpu.cli.stages import executable_lines, graph_lines, model_lines, plan_lines
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.frontend.lower import lower
from tflgpu.graph.ir import Graph
from tflgpu.model.model import Model
from tflgpu.model.reader import read_model
from tflgpu.model.writer import ModelBuilder
from tflgpu.passes import optimize, optimizing
from tflgpu.plan import make_plan
from tflgpu.target import Target

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "walk.md"

LAYERS = 2  # operators of the file that the page follows

ALPHA, SIZE = 0.25, 224  # the narrowest network of the paper: 8 channels behind the first layer

TARGET = Target(family="gpu", compute_units=132, storage="half")

OPTIONS = ("padding", "stride_h", "stride_w", "depth_multiplier", "fused_activation_function")  # that the page shows

LONGEST_GROUP = 60  # lines of source that may be left out as a repetition of those before

PAGE_TEXT = """\
# Two layers, stage by stage

`python -m scripts.pages.make_walk` writes this page. It compiles MobileNetV1 (width {alpha}, {size}x{size} pixels,
random weights) for a GPU with {units} compute units, in half precision, and follows the first two operators. `tflgpu
show MODEL --stage STAGE` prints such listings of any model: `model`, `graph` (with `--after PASS`), `plan`, `source`,
`executable`. [design.md](design.md) explains the stages, [glossary.md](../reference/glossary.md) the terms.

## 1. Read: bytes to `Model`

`read_model` gives the operators and their options, as the file declares them. Constants are views of the file.

```
{model}
```

`padding=0` is SAME, and `fused_activation_function=3` is RELU6.

## 2. Lower: `Model` to `Graph`

`lower` asks the declaration of each operator, in `tflgpu/ops/`, for its nodes. Padding is in pixels now: top, bottom,
left, right. RELU6 is an epilogue op: `v0` is what the kernel computes, `v1` what the first epilogue op makes of it.

```
{lowered}
```

## 3. Passes: `Graph` to `Graph`

`optimize` runs all passes in order, and verifies the graph after each. Here they find nothing to do: TensorFlow's
converter has folded the batch norms and fused RELU6. Other exporters leave that to the reader. This is the first layer
as five operators, lowered:

```
{unfused}
```

{passes}

## 4. Plan: `Graph` to `Plan`

`make_plan` gives every tensor its place, and every node its kernel: a template, a number of tiles (one for each
work-group) and arguments. The model's input stays in the host's order, because the first convolution reads it as it is.
The arena holds all activations. Tensors share its bytes if their lifetimes do not overlap.

```
{plan}
```

## 5. Render: `Plan` to OpenCL C

`render` fills in the templates. All sizes are numbers in the text. The statement `value1 = ...` is the epilogue op
RELU6; the store follows it. This page leaves out what repeats the lines before it with other numbers.

The convolution: a work-item computes 4 pixels of 2 slices, which is 4 pixels of all 8 channels.

```c
{first}
```

The depthwise convolution: a work-item computes pixels that lie one below the other, so each input row is read once
for all of them.

```c
{second}
```

## 6. Link: `Plan` to `Executable`

`link` gives every tensor and constant a buffer and an offset, and every launch its number of work-groups.
Arguments are in the order of the plan. An offset counts elements of the pointer's type. Launches of one barrier
interval do not depend on each other.

```
{linked}
```

Source and `Executable` make an `Artifact`: what the disk cache keeps, and what an executor runs.
"""


def plain(lines: Iterable[str]) -> str:
    """Lines with rich's markup, as plain text."""
    return "\n".join(Text.from_markup(line).plain.rstrip() for line in lines).strip("\n")


def first_operators(model: Model) -> str:
    """The first operators of the file, with the options that matter."""
    subgraph = model.subgraphs[0]
    operators = tuple(
        replace(operator, options={name: operator.options[name] for name in OPTIONS if name in operator.options})
        for operator in subgraph.operators[:LAYERS]
    )
    return plain(model_lines(replace(model, subgraphs=(replace(subgraph, operators=operators, outputs=()),))))


def first_nodes(graph: Graph, codes: Sequence[str]) -> str:
    """The nodes of the first layers."""
    nodes = tuple(node for node in graph.nodes if set(node.sources) & set(range(LAYERS)))
    return plain(graph_lines(replace(graph, nodes=nodes, outputs=(), states=()), codes))


def unfused_layer() -> bytes:
    """A model of the first layer alone, as exporters write it that fold and fuse nothing."""
    builder = ModelBuilder("the first layer, nothing folded")
    rng = np.random.default_rng(0)

    def constant(*shape: int) -> int:
        return builder.constant(rng.standard_normal(shape, np.float32))

    paddings = builder.constant(np.array([[0, 0], [0, 1], [0, 1], [0, 0]], np.int32))
    image, half = (1, SIZE, SIZE, 3), SIZE // 2
    last = builder.input(image, name="input")
    operators: tuple[tuple[str, list[int], tuple[int, ...], dict[str, object]], ...] = (
        ("PAD", [paddings], (1, SIZE + 1, SIZE + 1, 3), {}),
        ("CONV_2D", [constant(8, 3, 3, 3)], (1, half, half, 8), {"padding": "VALID", "stride_w": 2, "stride_h": 2}),
        ("MUL", [constant(8)], (1, half, half, 8), {}),
        ("ADD", [constant(8)], (1, half, half, 8), {}),
        ("RELU6", [], (1, half, half, 8), {}),
    )
    for code, others, shape, options in operators:
        result = builder.tensor(shape)
        builder.op(code, [last, *others], [result], options)
        last = result
    return builder.finish([last])


def pass_listings(graph: Graph, codes: Sequence[str]) -> Iterator[str]:
    """The graph after each pass that changes it."""
    before = plain(graph_lines(graph, codes))
    for step in optimizing(graph):
        after = plain(graph_lines(step.graph, codes))
        if after != before:
            yield f"After `{step.name}`:\n\n```\n{after}\n```"
            before = after


def folded(lines: Sequence[str]) -> list[str]:
    """Lines of source, without groups that repeat the group before them in all but numbers."""
    shapes = [re.sub(r"\d+", "#", line.strip()) for line in lines]
    kept: list[str] = []
    at = 0
    while at < len(lines):
        longest = min(LONGEST_GROUP, len(lines) - at - 1)
        choices = ((_repeats(shapes, at, length), length) for length in range(1, longest + 1))
        repeats, length = max(choices, key=lambda choice: choice[0] * choice[1], default=(0, 1))
        if repeats * length < 2:
            kept.append(lines[at])
            at += 1
            continue
        group = folded(lines[at : at + length]) if length < len(lines) else list(lines)
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        what = "this line" if len(group) == 1 else f"these {len(group)} lines"
        kept += [*group, f"{indent}// {what}, {repeats} more time{'s' if repeats > 1 else ''}"]
        at += length * (repeats + 1)
    return kept


def _repeats(shapes: Sequence[str], at: int, length: int) -> int:
    """How often the ``length`` lines from ``at`` on come again right behind themselves, if they are whole blocks."""
    group, depth, count = shapes[at : at + length], 0, 0
    for line in group:
        for brace in re.findall(r"[{}]", line):
            depth += 1 if brace == "{" else -1
            if depth < 0:
                return 0
    while depth == 0 and shapes[at + (count + 1) * length : at + (count + 2) * length] == group:
        count += 1
    return count


def page() -> str:
    """The text of docs/internals/walk.md."""
    model = read_model(mobilenet_v1(ALPHA, SIZE))
    lowered = lower(model)
    codes = [entry.code for entry in lowered.entries]
    graph = optimize(lowered.graph)
    assert first_nodes(graph, codes) == first_nodes(lowered.graph, codes), "a pass changes the layers: say so above"
    unfused = lower(read_model(unfused_layer()))
    unfused_codes = [entry.code for entry in unfused.entries]
    plan = make_plan(graph, TARGET)
    listed = plain(plan_lines(plan, codes)).split("\n\n")
    source = render(plan)
    executable = link(plan, source.names)
    functions = {function.name: function.source for function in source.functions}
    first, second = ("\n".join(folded(functions[name].splitlines())) for name in source.names[:LAYERS])
    return PAGE_TEXT.format(
        alpha=ALPHA,
        size=SIZE,
        units=TARGET.compute_units,
        model=first_operators(model),
        lowered=first_nodes(lowered.graph, codes),
        unfused=plain(graph_lines(unfused.graph, unfused_codes)),
        passes="\n\n".join(pass_listings(unfused.graph, unfused_codes)),
        plan="\n\n".join(listed[: 1 + LAYERS]),
        first=first,
        second=second,
        linked=plain(executable_lines(replace(executable, launches=executable.launches[:LAYERS], outputs=()))),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
