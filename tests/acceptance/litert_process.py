"""LiteRT's answer to a file, from a process of its own: what crashes it costs one answer.

As a program it reads a pickle from standard input, the file's path and inputs by name for each signature (None: the
main subgraph), and writes the outputs to standard output in the same form. Of a list of inputs it runs each, and an
input that is missing in one of them is the output of that name of the run before.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

# The kernels to ask, in this order: LiteRT's defaults refuse some files that its plain kernels run.
KERNELS = ("AUTO", "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "BUILTIN_REF")

SECONDS = 60.0


def answers(file: Path, inputs: Mapping[str | None, Arrays]) -> Mapping[str | None, Arrays]:
    """The outputs by name for each signature, of the first kernels that take the file. Raises RuntimeError."""
    ends = []
    for kernels in KERNELS:
        question = pickle.dumps((str(file), kernels, dict(inputs)))
        command = [sys.executable, __file__]
        end = subprocess.run(command, input=question, capture_output=True, timeout=SECONDS, check=False)
        if end.returncode == 0:
            found: Mapping[str | None, Arrays] = pickle.loads(end.stdout)
            return found
        ends.append(f"{kernels}: exit {end.returncode}, {end.stderr.decode(errors='replace')[-300:]}")
    raise RuntimeError(f"LiteRT does not run {file.name}; {'; '.join(ends)}")


def steps(file: Path, key: str, inputs: Sequence[Arrays]) -> Sequence[Arrays]:
    """The outputs of each of several runs of a signature; what inputs lack is an output of the run before."""
    found: Any = answers(file, {key: list(inputs)})[key]  # type: ignore[dict-item]
    return list(found)


def _answer(interpreter: Any, key: str | None, given: Any) -> Any:
    if isinstance(given, list):
        runner, outputs = interpreter.get_signature_runner(key), list[Arrays]()
        for each in given:
            before = {n: v for n, v in outputs[-1].items() if n in runner.get_input_details()} if outputs else {}
            outputs.append(runner(**{**before, **each}))
        return outputs
    if key is not None:
        result: Arrays = interpreter.get_signature_runner(key)(**given)
        return result
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], given[detail["name"]])
    interpreter.invoke()
    return {d["name"]: interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()}


def main() -> None:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    path, kernels, inputs = pickle.load(sys.stdin.buffer)
    interpreter = Interpreter(path, experimental_op_resolver_type=OpResolverType[kernels])
    found = {key: _answer(interpreter, key, given) for key, given in inputs.items()}
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
