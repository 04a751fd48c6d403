"""Reads a prompt in pieces, and then decodes one token after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tflgpu.language.language_steps import (
    SCORES,
    CachedRuns,
    ChosenToken,
    CompiledSteps,
    LanguageSteps,
    Step,
    language_steps,
)
from tflgpu.language.sampling import Sampler, Sampling
from tflgpu.model.reader import read_signatures

# The number of a mask of floats for a place that is not seen: large, and yet a number in half precision.
_UNSEEN = -45824.0

# Steps that are under way at a time: one is computed, and the next one is waiting for the device.
AHEAD = 2


class TokenModel:
    """A language model on a device: its weights, once for any number of caches. A context manager.

    Attributes:
        cache_size: How many tokens a cache has room for.
        vocabulary: How many tokens the model knows.
        prefill_sizes: How many tokens its prefill signatures take at once, the smallest first.
    """

    def __init__(self, steps: LanguageSteps, compiled: CompiledSteps) -> None:
        """Take a model that is compiled.

        Args:
            steps: Its signatures.
            compiled: What makes their runs.
        """
        self._steps, self._compiled = steps, compiled
        self.cache_size, self.vocabulary = steps.cache_size, steps.vocabulary
        self.prefill_sizes = tuple(step.size for step in steps.prefills)

    @classmethod
    def compile(
        cls,
        model: bytes,
        options: tflgpu.Options | None = None,
        *,
        ahead: bool | None = None,
        cache_value: int = 0,
    ) -> TokenModel:
        """Compile a model. Its prefill signatures are compiled when a prompt first needs them.

        Args:
            model: The bytes of a .tflite file with the signature ``decode``, and perhaps some of ``prefill``.
            options: By default those of :class:`tflgpu.Options`; the signature is chosen here.
            ahead: Whether :meth:`TokenDecoder.follow` lets the device choose tokens, and starts a step before the token
                before it is known. Only where the device runs the whole model. By default not on CPUs, where it gains
                nothing.
            cache_value: What an empty cache is filled with.

        Returns:
            The model on its device.

        Raises:
            ModelError: The model is damaged, or no language model.
            UnsupportedError: An operator cannot run on the device.
            DeviceError: There is no fitting device.
            BuildError: The device's compiler fails.
        """
        signatures = read_signatures(model)
        steps = language_steps(signatures)
        return cls(steps, CompiledSteps(model, options or tflgpu.Options(), steps, signatures, ahead, cache_value))

    def decoder(self) -> TokenDecoder:
        """Return a decoder with a cache of its own, which is empty. Decoders may be used by threads of their own."""
        return TokenDecoder(self._steps, self._compiled.runs())

    def close(self) -> None:
        """Release the device's memory; its decoders cannot be used afterwards."""
        self._compiled.close()

    def __enter__(self) -> TokenModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TokenDecoder:
    """One text that a language model reads and goes on with: its cache of keys and values. For one thread at a time.

    Attributes:
        cache_size: How many tokens the cache has room for.
        vocabulary: How many tokens the model knows.
        prefill_sizes: How many tokens its prefill signatures take at once, the smallest first.
    """

    def __init__(self, steps: LanguageSteps, runs: CachedRuns, model: TokenModel | None = None) -> None:
        """Take a model that is compiled.

        Args:
            steps: Its signatures.
            runs: What runs them, on an empty cache.
            model: What is closed with the decoder.
        """
        self._steps, self._runs, self._model = steps, runs, model
        self.cache_size, self.vocabulary = steps.cache_size, steps.vocabulary
        self.prefill_sizes = tuple(step.size for step in steps.prefills)
        self._held: list[int] = []  # tokens whose keys and values the cache has

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens whose keys and values the cache has."""
        return tuple(self._held)

    @classmethod
    def compile(cls, model: bytes, options: tflgpu.Options | None = None, *, ahead: bool | None = None) -> TokenDecoder:
        """Compile a model for one text. It is closed with the decoder.

        Args:
            model: As of :meth:`TokenModel.compile`.
            options: As of :meth:`TokenModel.compile`.
            ahead: As of :meth:`TokenModel.compile`.

        Returns:
            The model on its device, with an empty cache.

        Raises:
            ModelError: The model is damaged, or no language model.
            UnsupportedError: An operator cannot run on the device.
            DeviceError: There is no fitting device.
            BuildError: The device's compiler fails.
        """
        owned = TokenModel.compile(model, options, ahead=ahead)
        return cls(owned._steps, owned._compiled.runs(), owned)

    def prepare(self, count: int, sampling: Sampling | None = None, *, begin: int = 0) -> None:
        """Compile what reading tokens takes, so that :meth:`read` does not wait for it.

        Args:
            count: How many tokens the cache will have, at most :attr:`cache_size`.
            sampling: How :meth:`follow` will choose tokens; what the device needs for that is compiled, too.
            begin: How many of them it has already.

        Raises:
            UnsupportedError: An operator cannot run on the device.
            BuildError: The device's compiler fails.
        """
        for step, _, _ in self._pieces(count, begin):
            self._runs.open(step.signature)
        if sampling is not None:
            self._runs.chain(sampling)

    def kept(self, tokens: Sequence[int]) -> int:
        """Return how many of the first tokens :meth:`read` need not read again.

        Args:
            tokens: Of another text.

        Returns:
            How far the text is the one that the cache has. 0 where it is not all of it and states have no place for
            each token, which cannot go back.
        """
        held = self._held
        pairs = enumerate(zip(tokens, held, strict=False))
        equal = next((i for i, (one, other) in pairs if one != other), min(len(tokens), len(held)))
        return equal if self._steps.has_places or equal == len(held) else 0

    def read(self, tokens: Sequence[int]) -> int:
        """Let the cache have the keys and values of a text. Where it has those of its beginning, they are kept.

        Args:
            tokens: At most :attr:`cache_size`.

        Returns:
            How many tokens were read.

        Raises:
            DeviceError: The device fails.
        """
        kept = self.kept(tokens)
        del self._held[kept:]
        if kept == 0:
            self._runs.reset()
        for step, begin, end in self._pieces(len(tokens), kept):
            self._run(step, tokens[begin:end], begin)
        return len(tokens) - kept

    def step(self, token: int, position: int) -> NDArray[Any]:
        """Add a token to the text.

        Args:
            token: The last one so far.
            position: Its place in the text, below :attr:`cache_size`.

        Returns:
            The scores of all tokens as the next one.

        Raises:
            DeviceError: The device fails.
        """
        return self._run(self._steps.decode, [token], position)[SCORES]

    def follow(self, token: int, position: int, sampler: Sampler, count: int) -> Iterator[int]:
        """Choose the tokens that come next, one after another.

        Where the device chooses, a step is under way while the caller has the token of the one before it. An iterator
        that is left drops that step: it has written the cache from ``position`` plus the number of tokens on, where
        :meth:`step` and :meth:`follow` write anew.

        Args:
            token: The last one so far.
            position: Its place in the text.
            sampler: Chooses tokens; the first one is that of place 0.
            count: How many tokens. ``position`` and they are at most :attr:`cache_size`.

        Yields:
            Tokens.

        Raises:
            DeviceError: The device fails, or scores are no numbers.
        """
        chain = self._runs.chain(sampler.sampling) if sampler.is_plain else None
        if chain is None:
            for place in range(count):
                token = sampler.choose(self.step(token, position + place), place)
                yield token
            return
        del self._held[position:]
        under_way: deque[ChosenToken] = deque()
        for place in range(count + AHEAD - 1):
            try:
                if place < count:
                    inputs = self._inputs(self._steps.decode, [token], position + place)
                    if place:
                        del inputs[self._steps.decode.tokens]
                    under_way.append(chain.enqueue(inputs, sampler.draw(place)))
                chosen = under_way.popleft().wait() if place >= AHEAD - 1 else None
            except Exception:
                self._held.clear()  # the cache is undefined
                raise
            if chosen is not None:
                if len(self._held) == position + place - (AHEAD - 1):
                    self._held.append(token)  # which the step has read that chose the next one
                token = chosen
                yield token

    def copy(self, other: TokenDecoder) -> None:
        """Let the cache have what another decoder of the same model has.

        Args:
            other: It stays as it is.

        Raises:
            DeviceError: The device fails.
        """
        self._held.clear()
        self._runs.set(other._runs.values())
        self._held.extend(other._held)

    def close(self) -> None:
        """Release the device's memory; reading afterwards is an error."""
        self._runs.close()
        if self._model is not None:
            self._model.close()

    def _pieces(self, count: int, begin: int = 0) -> Iterator[tuple[Step, int, int]]:
        """Which signature reads which tokens of a prompt, from the place ``begin`` on.

        A signature computes all its rows, whether there are tokens for them or not: of those that need no more rows
        than the smallest would, it is the largest. The cache has to have room for all rows; where it has not, tokens
        are read one by one.
        """
        while begin < count:
            left, room = count - begin, self.cache_size - begin
            fitting = [step for step in self._steps.prefills if step.size <= room]
            if fitting and left > 1:
                smallest = fitting[0].size
                rows = -(-left // smallest) * smallest
                step = max((step for step in fitting if step.size <= rows), key=lambda step: step.size)
            else:
                step = self._steps.decode
            end = min(begin + step.size, count)
            yield step, begin, end
            begin = end

    def _run(self, step: Step, tokens: Sequence[int], position: int) -> dict[str, NDArray[Any]]:
        try:
            outputs = self._runs.run(step.signature, self._inputs(step, tokens, position))
        except BaseException:
            self._held.clear()  # the cache is undefined
            raise
        del self._held[position:]
        if len(self._held) == position:
            self._held.extend(tokens)
        return outputs

    def _inputs(self, step: Step, tokens: Sequence[int], position: int) -> dict[str, NDArray[Any]]:
        """Return the inputs of a signature. Rows without a token go on after the last one, where later tokens replace
        them."""
        rows = np.zeros((1, step.size), np.int32)
        rows[0, : len(tokens)] = tokens
        positions = np.arange(position, position + step.size, dtype=np.int32)
        inputs: dict[str, NDArray[Any]] = {step.tokens: rows, step.positions: positions}
        if step.mask is not None:
            seen = np.arange(self.cache_size) <= positions[:, None]
            mask = seen if step.mask_dtype == "bool" else np.where(seen, 0, _UNSEEN).astype(step.mask_dtype)
            inputs[step.mask] = mask[None, None]
        return inputs
