"""Vectors of texts, by encoders in the files of language models."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tflgpu.errors import ModelError
from tflgpu.language.containers import ENCODER, MODEL, open_language_file
from tflgpu.language.tokenizer import Tokenizer, given_tokenizer, tokens_of, utf8_text
from tflgpu.model.tensor_info import TensorInfo

Pooling = Literal["mean", "last", "first"]


class Embedder:
    """Makes vectors of texts: of similar texts similar ones. For any number of threads. A context manager.

    The model takes the tokens of one text, and perhaps a mask of them and their types, which it tells by the names of
    its inputs. It gives one vector, or one for each token.

    Attributes:
        file: The parts of the file.
        tokenizer: Text to tokens and back.
        size: How many elements a vector has.
        room: How many tokens a text may have; None for any number.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        options: tflgpu.Options | None = None,
        *,
        tokenizer: str | PathLike[str] | Tokenizer | None = None,
        pooling: Pooling = "mean",
        normalize: bool = True,
    ) -> None:
        """Open a file and compile its model.

        Args:
            path: A .litertlm file with an encoder of texts, or a .tflite file.
            options: For :func:`tflgpu.compile`.
            tokenizer: A file of ``sentencepiece`` or ``tokenizers``, or an object, in place of the file's own one.
            pooling: How vectors of all tokens become one: their mean, or that of the last or first token.
            normalize: Whether vectors have the length 1.

        Raises:
            ModelError: The file is damaged, or its model is no encoder of texts.
            ValueError: There is no tokenizer, or a package that reads the file is not installed.
            UnsupportedError: An operator cannot run on the device.
            DeviceError: There is no fitting device.
            BuildError: The device's compiler fails.
            OSError: A file cannot be read.
        """
        if pooling not in ("mean", "last", "first"):
            raise ValueError(f"pooling is {pooling!r}; mean, last or first was expected")
        self.file = open_language_file(path)
        metadata = self.file.metadata
        self.tokenizer = given_tokenizer(self.file, tokenizer)
        self._before = () if metadata.start is None else tokens_of(self.tokenizer, metadata.start)
        self._after = tokens_of(self.tokenizer, metadata.stops[0]) if metadata.stops else ()
        self._pad = next(iter(tokens_of(self.tokenizer, metadata.pad)), 0) if metadata.pad is not None else 0
        name = ENCODER if ENCODER in self.file.models else MODEL
        if name not in self.file.models:
            listed = ", ".join(self.file.models) or "no model"
            raise ModelError(f"{self.file.path}: the file has no encoder of texts; it has: {listed}")
        self._model = tflgpu.compile(self.file.models[name](), options or tflgpu.Options())
        self._pooling, self._normalize = pooling, normalize
        try:
            self._tokens, self._mask, self._types = _inputs(self._model.inputs)
            self._output = _output(self._model.outputs)
        except ModelError as error:
            self._model.close()
            raise ModelError(f"{self.file.path}: {error}") from error
        self.size = self._output.shape[-1]
        self.room = None if self._tokens.free_axes else self._tokens.shape[-1]

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text, with those that the file or its tokenizer puts around it.

        Args:
            text: Of a document or a question, with the model's own words for that.

        Raises:
            TypeError: The text is none.
            ValueError: It has halves of characters, as Python reads bytes that are no UTF-8.
        """
        text = utf8_text("the text", text)
        if self._before or self._after:
            return [*self._before, *self.tokenizer.encode(text), *self._after]
        whole = getattr(self.tokenizer, "encode_whole", self.tokenizer.encode)
        return list(whole(text))

    def embed(self, text: str | list[int]) -> NDArray[np.float32]:
        """Return the vector of a text.

        Args:
            text: The text, or its tokens.

        Returns:
            A vector of :attr:`size` elements.

        Raises:
            ValueError: The text has no tokens, more than the model has room for, or the embedder is closed.
            TypeError: The text is none.
            DeviceError: The device fails.
        """
        tokens = self.tokens(text) if isinstance(text, str) else list(text)
        if not tokens:
            raise ValueError("the text has no tokens")
        if self.room is not None and len(tokens) > self.room:
            raise ValueError(f"the text has {len(tokens)} tokens, and the model has room for {self.room}")
        size = self.room or len(tokens)
        inputs = {self._tokens.name: _row(self._tokens, tokens, size, self._pad)}
        if self._mask is not None:
            inputs[self._mask.name] = _row(self._mask, [1] * len(tokens), size, 0)
        if self._types is not None:
            inputs[self._types.name] = _row(self._types, [], size, 0)
        found: Mapping[str, NDArray[Any]] = self._model.run(inputs)
        vector = self._pooled(found[self._output.name].astype(np.float64), len(tokens))
        if self._normalize:
            vector = vector / max(float(np.linalg.norm(vector)), 1e-300)
        return np.asarray(vector, np.float32)

    def _pooled(self, values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        """Return one vector of the model's output, whose first ``count`` tokens are the text's."""
        if len(self._output.shape) < 3:
            return values.reshape(-1)
        rows = values.reshape(-1, values.shape[-1])[:count]
        if self._pooling == "mean":
            return np.asarray(rows.mean(axis=0))
        return np.asarray(rows[-1 if self._pooling == "last" else 0])

    def close(self) -> None:
        """Release the device's memory."""
        self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _inputs(infos: tuple[TensorInfo, ...]) -> tuple[TensorInfo, TensorInfo | None, TensorInfo | None]:
    """Return the inputs that are tokens, a mask and types. Raises ModelError for others."""
    mask = next((info for info in infos if "mask" in info.name.lower()), None)
    types = next((info for info in infos if "type" in info.name.lower()), None)
    rest = [info for info in infos if info not in (mask, types)]
    if len(rest) != 1 or rest[0].dtype not in ("int32", "int64") or len(rest[0].shape) != 2 or rest[0].shape[0] != 1:
        listed = ", ".join(f"{info.name} ({info.dtype}{list(info.shape)})" for info in infos)
        raise ModelError(
            f"this is no encoder of texts: tokens of the shape [1, n] were expected, and it takes {listed}"
        )
    return rest[0], mask, types


def _output(infos: tuple[TensorInfo, ...]) -> TensorInfo:
    """Return the output that has the vector, or vectors of tokens. Raises ModelError if there is none."""
    floats = [info for info in infos if info.dtype == "float32" and len(info.shape) in (2, 3)]
    if not floats:
        raise ModelError("this is no encoder of texts: it gives no vectors of floats")
    return min(floats, key=lambda info: len(info.shape))


def _row(info: TensorInfo, values: list[int], size: int, rest: int) -> NDArray[Any]:
    row = np.full((1, size), rest, info.dtype)
    row[0, : len(values)] = values
    return row
