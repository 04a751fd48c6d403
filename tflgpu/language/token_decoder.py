"""Reads a prompt in pieces, and then decodes one token after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tflgpu.language.cached_runs import CachedRuns, ChosenToken
from tflgpu.language.language_steps import SCORES, LanguageSteps, Step, language_steps
from tflgpu.language.sampling import Sampler, Sampling
from tflgpu.model.reader import read_signatures

# What a mask of floats has for a place that is not seen: large, and yet a number in half precision.
_UNSEEN = -45824.0

# Steps that are under way at a time: one is computed, and the next one is waiting for the device.
AHEAD = 2


class TokenDecoder:
    """A language model on a device, with its cache of keys and values.

    Attributes:
        cache_size: How many tokens the cache has room for.
        vocabulary: How many tokens the model knows.
        prefill_sizes: How many tokens its prefill signatures take at once, the smallest first.
    """

    def __init__(self, steps: LanguageSteps, runs: CachedRuns) -> None:
        """Take a model that is compiled.

        Args:
            steps: Its signatures.
            runs: What runs them.
        """
        self._steps, self._runs = steps, runs
        self.cache_size, self.vocabulary = steps.cache_size, steps.vocabulary
        self.prefill_sizes = tuple(step.size for step in steps.prefills)

    @classmethod
    def compile(cls, model: bytes, options: tflgpu.Options | None = None, *, ahead: bool | None = None) -> TokenDecoder:
        """Compile a model. Its prefill signatures are compiled when a prompt first needs them.

        Args:
            model: The bytes of a .tflite file with the signature ``decode``, and perhaps some of ``prefill``.
            options: By default those of :class:`tflgpu.Options`; the signature is chosen here.
            ahead: Whether :meth:`follow` lets the device choose tokens, and starts a step before the token before it is
                known. Only where the device runs the whole model. By default not on CPUs, where it gains nothing.

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
        return cls(steps, CachedRuns(model, options or tflgpu.Options(), steps, signatures, ahead))

    def prepare(self, count: int, sampling: Sampling | None = None) -> None:
        """Compile what reading ``count`` tokens takes, so that :meth:`read` does not wait for it.

        Args:
            count: At most :attr:`cache_size`.
            sampling: How :meth:`follow` will choose tokens; what the device needs for that is compiled, too.

        Raises:
            UnsupportedError: An operator cannot run on the device.
            BuildError: The device's compiler fails.
        """
        for step, _, _ in self._pieces(count):
            self._runs.open(step.signature)
        if sampling is not None:
            self._runs.chain(sampling)

    def read(self, tokens: Sequence[int]) -> None:
        """Empty the cache, and fill it with the keys and values of a prompt.

        Args:
            tokens: At most :attr:`cache_size`.

        Raises:
            DeviceError: The device fails.
        """
        self._runs.reset()
        for step, begin, end in self._pieces(len(tokens)):
            self._run(step, tokens[begin:end], begin)

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
        chain = self._runs.chain(sampler.sampling)
        if chain is None:
            for place in range(count):
                token = sampler.choose(self.step(token, position + place), place)
                yield token
            return
        under_way: deque[ChosenToken] = deque()
        for place in range(count):
            inputs = self._inputs(self._steps.decode, [token], position + place)
            if place:
                del inputs[self._steps.decode.tokens]
            under_way.append(chain.enqueue(inputs, sampler.draw(place)))
            if len(under_way) == AHEAD:
                yield under_way.popleft().wait()
        while under_way:
            yield under_way.popleft().wait()

    def close(self) -> None:
        """Release the device's memory; reading afterwards is an error."""
        self._runs.close()

    def _pieces(self, count: int) -> Iterator[tuple[Step, int, int]]:
        """Which signature reads which tokens of a prompt.

        A signature computes all its rows, whether there are tokens for them or not: of those that need no more rows
        than the smallest would, it is the largest. The cache has to have room for all rows; where it has not, tokens
        are read one by one.
        """
        begin = 0
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
        return self._runs.run(step.signature, self._inputs(step, tokens, position))

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
