"""Parts that executors of one kernel for all launches share: its first arguments."""

from __future__ import annotations

from collections.abc import Sequence

import pyopencl as cl

from tflgpu.runtime.executors.executor import Executor, Use
from tflgpu.runtime.opencl.program import set_number


class OneKernelExecutor(Executor):
    """Runs all launches in one kernel, whose first arguments are the model's memory, and every movable binding."""

    @property
    def _memory(self) -> Sequence[cl.Buffer]:
        """The buffers that the kernel gets."""
        return self._buffers

    def _bind_whole(self, kernel: cl.Kernel) -> int:
        """Set the first arguments of the kernel. Returns the number of the next one."""
        for i, buffer in enumerate(self._memory):
            kernel.set_arg(i, buffer)
        argument = len(self._memory)
        for number in self.executable.movable:
            buffer, offset = self._home(number)
            kernel.set_arg(argument, buffer)
            set_number(kernel, argument + 1, self._offset_type(offset))
            argument += 2
        return argument

    def _argument_of(self, number: int) -> int:
        """Return the argument that is a buffer which callers hold."""
        return number

    def _follow(self, kernel: cl.Kernel) -> None:
        """Note the uses of movable bindings, and of what callers hold, by the kernel."""
        for i, number in enumerate(self.executable.movable):
            self._uses[number].append(Use(kernel, len(self._memory) + 2 * i, 1))
        for number in self.executable.held:
            self._held_uses[number].append((kernel, self._argument_of(number)))
