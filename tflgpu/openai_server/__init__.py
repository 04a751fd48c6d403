"""A server of a language model with OpenAI's interface."""

from __future__ import annotations

from tflgpu.openai_server.app import create_app

__all__ = ["create_app"]
