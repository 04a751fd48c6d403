"""The figures that a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tflgpu.language import Statistics


class Metrics:
    """Counters of one server."""

    def __init__(self, busy: Callable[[], int]) -> None:
        """Take what tells how many sessions answer."""
        self._registry = CollectorRegistry()
        self._requests = Counter("tflgpu_requests", "Answers by their end.", ["end"], registry=self._registry)
        self._prompt = Counter("tflgpu_prompt_tokens", "Tokens of prompts.", registry=self._registry)
        self._kept = Counter("tflgpu_kept_tokens", "Tokens of prompts that a cache had.", registry=self._registry)
        self._new = Counter("tflgpu_new_tokens", "Tokens of answers.", registry=self._registry)
        self._seconds = Histogram("tflgpu_answer_seconds", "Time of an answer.", registry=self._registry)
        Gauge("tflgpu_busy_sessions", "Sessions that answer.", registry=self._registry).set_function(busy)

    def add(self, taken: Statistics) -> None:
        """Count an answer that is over.

        Args:
            taken: Its tokens and times.
        """
        self._requests.labels(taken.end).inc()
        self._prompt.inc(taken.prompt_tokens)
        self._kept.inc(taken.kept_tokens)
        self._new.inc(taken.new_tokens)
        self._seconds.observe(taken.prefill_seconds + taken.decode_seconds)

    def text(self) -> bytes:
        """Return all of them in Prometheus' format."""
        return bytes(generate_latest(self._registry))
