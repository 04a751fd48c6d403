"""Opens a model: from the cache, compiled, or run by LiteRT until it is compiled."""

from tflgpu.opening.opener import Opener, lower_for_device

__all__ = ["Opener", "lower_for_device"]
