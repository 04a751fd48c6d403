"""The signatures of one file on one device, each compiled when it is first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import ref

import pyopencl as cl

from tflgpu.artifact.executable import SharedConstants
from tflgpu.errors import CacheMissError, UnsupportedError
from tflgpu.model.tensor_info import SignatureInfo
from tflgpu.options import Options
from tflgpu.runtime.model_variables import ModelVariables

if TYPE_CHECKING:
    from tflgpu.runtime.model_session import ModelSession

M = TypeVar("M")

Pairs = Mapping[str, str]  # bound inputs by output


class Family(Generic[M]):
    """The models of one file's signatures.

    The first one has the family and is not kept alive by it; the others are kept until it is closed. So the device's
    memory is free with the last reference to the first one, as that of a model alone.
    """

    def __init__(
        self,
        first: M,
        own: str | None,
        infos: Sequence[SignatureInfo],
        options: Options,
        make: Callable[[Options, Family[M]], M],
        variables: ModelVariables,
    ) -> None:
        """own: key of the first one's signature. infos: of all. options: of the first. make: compiles another one.

        variables: of the opened model, which all have.
        """
        self.variables = variables
        self.bound: dict[str, str] = {}  # inputs by output, for all models
        self.states: ModelSession | None = None  # of these
        self.constants: tuple[tuple[SharedConstants, cl.Buffer], ...] = ()  # that later models may share
        self.own, self.infos = own, tuple(infos)
        self._first, self._options, self._make = ref(first), options, make
        self._others: dict[tuple[str | None, tuple[tuple[str, str], ...]], M] = {}
        self._lock = threading.RLock()
        self._is_closed = False

    def model(self, key: str | None, bound: Pairs | None = None) -> M:
        """Return the model of a signature. It is compiled if that is not done; all errors of compiling may be raised.

        Args:
            key: The signature's name.
            bound: Inputs by output that become states, if the device can run all of the signature; None for none.

        Raises:
            ValueError: There is no such signature, or the family is closed.
        """
        with self._lock:
            self.check_open()
            first = self._first()
            if key == self.own and first is not None and (not bound or bound == self._options.interface.bound):
                return first
            place = key, tuple(sorted((bound or {}).items()))
            if place not in self._others:
                made = self._bound(key, bound) if bound else self._make(self._options_of(key, {}), self)
                self._others[place] = made
            return self._others[place]

    def _bound(self, key: str | None, bound: Pairs) -> M:
        try:
            return self._make(self._options_of(key, bound), self)
        except (UnsupportedError, CacheMissError):  # a part of it runs on the CPU, or the cache has it without states
            return self.model(key)

    def models(self) -> tuple[M, ...]:
        """All that there are."""
        first = self._first()
        return (*self._others.values(), *(() if first is None else (first,)))

    def share(self, constants: Iterable[tuple[SharedConstants, cl.Buffer]]) -> None:
        """Let models that are compiled later have these constants, too.

        Args:
            constants: With the buffers that have them.
        """
        self.constants += tuple(each for each in constants if each not in self.constants)

    def check_open(self) -> None:
        """Raise ValueError if it is closed."""
        if self._is_closed:
            raise ValueError("this model is closed; compile it again")

    def close(self) -> tuple[M, ...]:
        """Forget all models but the first. Returns them."""
        with self._lock:
            self._is_closed = True
            others = tuple(self._others.values())
            self._others.clear()
            self.constants = ()
        return others

    def _options_of(self, key: str | None, bound: Pairs) -> Options:
        """Return the options of the first model, without what names other tensors than the signature has."""
        options, interface = self._options, self._options.interface
        if key != self.own:
            info = next((info for info in self.infos if info.key == key), None)
            if info is None:
                raise ValueError(f"the model has no signature {key!r}; it has: {[info.key for info in self.infos]}")
            names = {each.name for each in info.inputs}
            scalings = {n: pair for n, pair in (interface.uint8_inputs or {}).items() if n in names}
            shapes = {n: shape for n, shape in (options.shapes.inputs or {}).items() if n in names}
            interface = replace(interface, signature=key, outputs=None, uint8_inputs=scalings or None)
            options = replace(options, shapes=replace(options.shapes, inputs=shapes or None))
        if bound:
            interface = replace(interface, bound={**(interface.bound or {}), **bound})
        return replace(options, interface=interface)


class Signatures(Mapping[str, M]):
    """A file's signatures by key, in the file's order. Each is compiled when it is first asked for.

    They have the device and the options of the model that they are of, and share its copies of equal weights.
    """

    def __init__(self, family: Family[M], first: M) -> None:
        self._family, self._first = family, first  # which is to live as long as the signatures are asked for
        self._keys = tuple(info.key for info in family.infos if info.key is not None)

    def __getitem__(self, key: str) -> M:
        """Return the model of a signature.

        Raises:
            KeyError: The file has no such signature.
            ValueError: The model is closed.
        """
        if key not in self._keys:
            raise KeyError(key)
        return self._family.model(key)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<Signatures {', '.join(self._keys)}>"
