"""LiteRT-LM's names: a script for ``litert_lm`` runs with another import line.

from tflgpu import litert_lm

with litert_lm.Engine("model.litertlm") as engine, engine.create_conversation() as conversation:
    print(conversation.send_message("What is OpenCL?"))
"""

from __future__ import annotations

from tflgpu.litert_lm.configs import (
    CPU,
    GPU,
    Backend,
    BenchmarkInfo,
    ConstrainedDecodingConfig,
    LogSeverity,
    RepetitionPenaltyConfig,
    ResponseFormat,
    Responses,
    SamplerConfig,
    SuppressTokensConfig,
    ThinkingConfig,
    set_min_log_severity,
)
from tflgpu.litert_lm.litert_lm_conversation import Conversation
from tflgpu.litert_lm.litert_lm_engine import Engine, Session
from tflgpu.litert_lm.messages import (
    Content,
    Contents,
    Message,
    Role,
    Tool,
    ToolCall,
    ToolEventHandler,
    tool_from_function,
)

__all__ = [
    "CPU",
    "GPU",
    "Backend",
    "BenchmarkInfo",
    "ConstrainedDecodingConfig",
    "Content",
    "Contents",
    "Conversation",
    "Engine",
    "LogSeverity",
    "Message",
    "RepetitionPenaltyConfig",
    "ResponseFormat",
    "Responses",
    "Role",
    "SamplerConfig",
    "Session",
    "SuppressTokensConfig",
    "ThinkingConfig",
    "Tool",
    "ToolCall",
    "ToolEventHandler",
    "set_min_log_severity",
    "tool_from_function",
]
