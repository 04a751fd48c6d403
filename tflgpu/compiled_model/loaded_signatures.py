"""The signatures of a model that was read once."""

from __future__ import annotations

import operator
from dataclasses import replace

from tflgpu.compiled_model.signature_model import SignatureModel
from tflgpu.frontend.entry_point import entry_point
from tflgpu.model.model_source import ModelContent
from tflgpu.model.reader import read_model
from tflgpu.options import Options
from tflgpu.runtime.device_memory import Queue

# LiteRT's key of the main subgraph, in a file that names no signature.
PLACEHOLDER = "<placeholder signature>"


class LoadedSignatures:
    """All signatures, of which the first one is compiled at once. They run on one queue of the device.

    Raises what :func:`tflgpu.compile` does.
    """

    def __init__(self, content: ModelContent, options: Options, queue: Queue | None) -> None:
        with content.naming_file():
            model = read_model(content.bytes)
        keys = [signature.key for signature in model.signatures]
        main = entry_point(model)
        if keys and model.signatures[0].subgraph == 0:
            entries = [main, *(entry_point(model, key) for key in keys[1:])]
        else:
            entries = [entry_point(model, key) for key in keys] or [main]
        self.signatures: list[SignatureModel] = []
        for key, entry in zip(keys or [PLACEHOLDER], entries, strict=True):
            # Without a key the cache also finds what tflgpu.compile has compiled.
            wanted = replace(options.interface, signature=None if entry is main else key)
            first = self.signatures[0] if self.signatures else None
            self.signatures.append(
                SignatureModel(content, key, entry, replace(options, interface=wanted), queue, first)
            )
        self.signatures[0].compiled()

    def index(self, key: str) -> int:
        """Return the place of a signature, -1 for an unknown one.

        Args:
            key: Its name in the file.

        Raises:
            TypeError: The key is no text.
        """
        if not isinstance(key, str):
            raise TypeError(f"the key of a signature is a text, not {key!r}")
        return next((number for number, each in enumerate(self.signatures) if each.key == key), -1)

    def by_key(self, key: str) -> SignatureModel:
        """Return a signature by its name.

        Args:
            key: Its name in the file.

        Raises:
            RuntimeError: There is no such signature.
            TypeError: The key is no text.
        """
        number = self.index(key)
        if number < 0:
            raise RuntimeError(f"Signature not found: {key}; the model has {[each.key for each in self.signatures]}")
        return self.signatures[number]

    def by_index(self, number: int) -> SignatureModel:
        """Return a signature by its place.

        Args:
            number: Its place in the file, from 0 on.

        Raises:
            RuntimeError: There is no such signature.
            TypeError: It is no whole number.
        """
        if not 0 <= operator.index(number) < len(self.signatures):
            raise RuntimeError(f"there is no signature {number}; the model has {len(self.signatures)}")
        return self.signatures[number]

    def close(self) -> None:
        """Release the device memory."""
        for signature in self.signatures:
            signature.close()
