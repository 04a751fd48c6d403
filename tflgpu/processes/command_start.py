"""Ctrl-C while the command line imports: it ends the process by the signal, as it ends other programs of a shell.

Python would raise KeyboardInterrupt in the middle of an import, and print where. This module is imported before all
others, and imports next to nothing. :class:`tflgpu.cli.usage.Verbs` then answers Ctrl-C itself.
"""

from __future__ import annotations

import os
import signal
import sys


def _is_command() -> bool:
    """Whether this process was started as ``tflgpu`` or ``python -m tflgpu``; its workers were not."""
    first, given = (getattr(sys, "argv", None) or [""])[0], sys.orig_argv
    if first == "-m":  # as long as Python looks for the module
        return "tflgpu" in given[given.index("-m") + 1 :][:1]
    return os.path.basename(first).removesuffix(".exe") == "tflgpu" and first in given


IS_COMMAND = _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler

if IS_COMMAND:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def answer_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on, as in any program of Python."""
    if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
