"""Completion, as bash asks for it."""

from __future__ import annotations

import pytest

from tests.cli.command import invoke


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("tflgpu pre", ["predict", "precompile-cache"]),
        ("tflgpu run --device ", ["auto", "cpu", "gpu"]),
        ("tflgpu run --precision fp", ["fp32", "fp16", "fp16_fast"]),
        ("tflgpu show --stage s", ["source"]),
    ],
)
def test_verbs_devices_and_choices_are_completed(words: str, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TFLGPU_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    assert invoke().stdout.split() == found
