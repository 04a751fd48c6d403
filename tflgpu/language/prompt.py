"""How a prompt is written for a model: with the text that its file puts around what a user says."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tflgpu.errors import ModelError
from tflgpu.language import template_renderer
from tflgpu.language.language_metadata import LanguageMetadata
from tflgpu.processes.server_process import can_run, end_in_words

RENDERER = Path(template_renderer.__file__)

# Seconds for a process to start and to render, on a machine so busy that it gets a fifth of a core.
PATIENCE = 30.0


def written_prompt(metadata: LanguageMetadata, prompt: str) -> str:
    """Return the prompt as a user's part of a conversation, up to where the model's answer begins.

    A file's affixes come before its template of Jinja; without both the prompt is what it is.

    Raises ModelError for a template that fails.
    """
    user, model = metadata.user, metadata.model
    around = user.prefix, user.suffix, model.prefix
    if any(around) or not metadata.jinja_template:
        return f"{user.prefix}{prompt}{user.suffix}{model.prefix}"
    return _rendered(metadata.jinja_template, prompt)


def _rendered(template: str, prompt: str) -> str:
    """Return what a file's own template makes of the prompt, in a process of its own with limits of time and memory.

    A program without a Python interpreter, such as a frozen one, renders here, without limits.
    """
    variables = {
        "messages": [{"role": "user", "content": prompt}],
        "add_generation_prompt": True,
        "bos_token": "",  # the start token comes before the text, as a token
        "eos_token": "",
    }
    request = {"template": template, "variables": variables}
    reply = _asked(request) if can_run(RENDERER) else template_renderer.reply(request)
    if "error" in reply:
        raise ModelError(f"the file's prompt template fails: {reply['error']}")
    return reply["text"]


def _asked(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the reply of a process for one request."""
    import subprocess  # who has no template does without

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        process = subprocess.run(
            [sys.executable, "-S", "-P", str(RENDERER)],
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it did not end within {PATIENCE:g} s"}
    except OSError as error:
        return {"error": f"no process can be started for it: {error}"}
    if not process.stdout:
        late = process.returncode == -getattr(signal, "SIGXCPU", 0)
        end = f"takes more than {template_renderer.SECONDS} s" if late else end_in_words(process.returncode)
        return {"error": f"it {end}"}
    return dict(json.loads(process.stdout))
