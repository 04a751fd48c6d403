"""Times of answers, as LiteRT-LM tells them."""

from __future__ import annotations

from tflgpu.language import Statistics
from tflgpu.litert_lm.configs import BenchmarkInfo


def benchmark_info(seconds: float, taken: Statistics | None) -> BenchmarkInfo:
    """Return the times of an engine's last answer.

    Args:
        seconds: Time until the engine was ready.
        taken: The answer's tokens and times; None if there was no answer.

    Raises:
        RuntimeError: There was none.
    """
    if taken is None:
        raise RuntimeError("there is no answer yet; times are known after the first one")
    first = taken.prefill_seconds + (1 / taken.decode_rate if taken.decode_rate else 0.0)
    read = taken.prompt_tokens - taken.kept_tokens
    return BenchmarkInfo(seconds, first, read, taken.prefill_rate, taken.new_tokens, taken.decode_rate)
