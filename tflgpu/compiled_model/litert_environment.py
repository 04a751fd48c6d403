"""LiteRT's ``Environment``: what several models share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tflgpu.runtime.device_memory import Queue


@dataclass(frozen=True)
class EnvironmentOptions:
    """Where LiteRT finds its libraries. They have no effect here: OpenCL finds its drivers.

    Attributes:
        runtime_path: Folder of the runtime.
        compiler_plugin_path: Folder of plugins for NPUs.
        dispatch_library_path: Folder of drivers for NPUs.
    """

    runtime_path: str | None = None
    compiler_plugin_path: str = ""
    dispatch_library_path: str = ""


@dataclass(frozen=True)
class Shared:
    """Resources of an environment for its models. queue: of pyopencl, None if each model makes its own."""

    queue: Queue | None = None


class Environment:
    """Resources that several models share; :meth:`create` makes it. A context manager.

    Args:
        capsule: What another environment has as ``capsule``.
        options: The options that it was created with.
    """

    def __init__(self, capsule: Any, options: EnvironmentOptions) -> None:
        self._capsule, self._options = capsule, options

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        self.close()

    def close(self) -> None:
        """No further models can be made with it; those that have been go on."""
        self._capsule = None

    @classmethod
    def create(
        cls,
        *,
        options: EnvironmentOptions | str | None = None,
        runtime_path: str | None = None,
        compiler_plugin_path: str = "",
        dispatch_library_path: str = "",
        queue: Queue | None = None,
    ) -> Environment:
        """Make an environment.

        Args:
            options: Kept, without effect; a text is the ``runtime_path``.
            runtime_path: Kept, without effect.
            compiler_plugin_path: Kept, without effect.
            dispatch_library_path: Kept, without effect.
            queue: As of :func:`tflgpu.compile`: all models of the environment run on this queue of pyopencl, so that
                they can share arrays on the device. LiteRT has no such argument.

        Returns:
            The environment.

        Raises:
            ValueError: ``options`` is given and one of the paths, too.
        """
        if isinstance(options, str):
            if runtime_path is not None:
                raise ValueError("runtime_path was provided twice.")
            options, runtime_path = None, options
        paths = EnvironmentOptions(runtime_path, compiler_plugin_path, dispatch_library_path)
        if options is not None and paths != EnvironmentOptions():
            raise ValueError("Pass either options or environment path shortcuts.")
        chosen = options or paths
        place = chosen.runtime_path or str(Path(__file__).parents[1])
        full = EnvironmentOptions(place, chosen.compiler_plugin_path, chosen.dispatch_library_path)
        return cls(Shared(queue), full)

    @property
    def options(self) -> EnvironmentOptions:
        """The options that it was created with."""
        return self._options

    @property
    def capsule(self) -> Any:
        """Resources for a model. Raises ValueError if the environment is closed."""
        if self._capsule is None:
            raise ValueError("Environment is no longer valid")
        return self._capsule
