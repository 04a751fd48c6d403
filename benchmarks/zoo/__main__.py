"""``python -m benchmarks.zoo mobilenet_v1 out.tflite``: write one network of the zoo to a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.zoo import MODELS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("path", type=Path, help="the .tflite file to write")
    parser.add_argument("--size", type=int, help="height and width of an image in pixels, or samples of a sound")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights")
    arguments = parser.parse_args()
    size = {} if arguments.size is None else {"size": arguments.size}
    arguments.path.write_bytes(MODELS[arguments.model](**size, seed=arguments.seed))


if __name__ == "__main__":
    main()
