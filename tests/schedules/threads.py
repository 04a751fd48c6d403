"""Threads of Python in drawn schedules: one runs at a time, and after each line another one may go on."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType, ModuleType
from typing import Any, Self


class DeadlockError(Exception):
    """No thread can go on."""


class Task:
    """A thread, and what it waits for: nothing if ``may_go_on`` is true."""

    def __init__(self, may_go_on: Callable[[], bool] = lambda: True) -> None:
        self.turn, self.may_go_on = threading.Semaphore(0), may_go_on


class Schedule:
    """Takes the place of the module ``threading`` in some modules, whose lines it interleaves."""

    def __init__(self, seed: int, *modules: ModuleType) -> None:
        self.draw, self._files = random.Random(seed), {module.__file__ for module in modules}
        self._tasks = [Task()]
        self.now = self._tasks[0]
        self.error: BaseException | None = None
        self.Lock = self.RLock = lambda: Lock(self)
        self.Condition = lambda lock=None: Condition(self, lock or Lock(self))
        self.Semaphore = lambda value: Semaphore(self, value)

    def Thread(self, target: Callable[[], object], name: str = "") -> Thread:  # noqa: N802
        """A thread that begins when its ``start`` is called."""
        return Thread(self, target)

    def switch(self, until: Callable[[], bool] = lambda: True) -> None:
        """Let any thread go on, and this one not before ``until`` is true."""
        me = self.now
        me.may_go_on = until
        able = [task for task in self._tasks if task.may_go_on()]
        if self.error or not able:
            self.error = self.error or DeadlockError()
            able = [self._tasks[0]]
        self.now = self.draw.choice(able)
        if self.now is not me:
            self.now.turn.release()
            me.turn.acquire()
        if self.error and me is self._tasks[0]:
            raise self.error

    def begin(self, task: Task) -> None:
        """Take a thread in."""
        self._tasks.append(task)

    def end(self, task: Task) -> None:
        """Let another thread go on in place of one that has ended."""
        self._tasks.remove(task)
        able = [each for each in self._tasks if each.may_go_on()]
        if not able:
            self.error = self.error or DeadlockError()
        self.now = self.draw.choice(able or self._tasks[:1])
        self.now.turn.release()

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        """A trace function: lines of the modules are where threads change."""
        code: CodeType = frame.f_code
        if code.co_filename not in self._files:
            return None
        if event == "line" and self.draw.random() < 0.3:
            self.switch()
        return self.trace

    def run(self, function: Callable[[], object]) -> None:
        """Run a function as the first thread, and then the others to their ends. Raises what any of them raises."""
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            function()
        finally:
            sys.settrace(before)
        self.switch(lambda: len(self._tasks) == 1)


class Thread:
    """A thread of a schedule."""

    def __init__(self, schedule: Schedule, target: Callable[[], object]) -> None:
        self._schedule, self._target, self._task = schedule, target, Task()

    def start(self) -> None:
        """Let it run when its turn comes."""
        self._schedule.begin(self._task)
        threading.Thread(target=self._run, daemon=True).start()
        self._schedule.switch()

    def _run(self) -> None:
        self._task.turn.acquire()
        sys.settrace(self._schedule.trace)
        try:
            self._target()
        except BaseException as error:
            self._schedule.error = self._schedule.error or error
        sys.settrace(None)
        self._schedule.end(self._task)


class Lock:
    """A lock of a schedule, which a thread may take several times."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, self._depth = schedule, 0
        self._owner: Task | None = None

    def acquire(self) -> None:
        me = self._schedule.now
        self._schedule.switch(lambda: self._owner in (None, me))
        self._owner, self._depth = me, self._depth + 1

    def release(self) -> None:
        if self._schedule.error:
            return
        assert self._owner is self._schedule.now, "only who has a lock may release it"
        self._depth -= 1
        if not self._depth:
            self._owner = None
        self._schedule.switch()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition(Lock):
    """A condition of a schedule. Its time may be over at once."""

    def __init__(self, schedule: Schedule, _: Lock) -> None:
        super().__init__(schedule)
        self._notified = 0

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until it is true after a notification, or until the time is over."""
        me, depth = self._schedule.now, self._depth
        assert self._owner is me, "only who has the lock may wait"
        while not (found := predicate()):
            seen, self._owner, self._depth = self._notified, None, 0
            self._schedule.switch(partial(self._may_go_on, seen, timeout))
            self._owner, self._depth = me, depth
            if self._notified == seen:
                return predicate()
        return found

    def _may_go_on(self, seen: int, timeout: float | None) -> bool:
        return self._owner is None and (timeout is not None or self._notified > seen)

    def notify(self) -> None:
        assert self._owner is self._schedule.now, "only who has the lock may notify"
        self._notified += 1

    notify_all = notify


class Semaphore:
    """A semaphore of a schedule."""

    def __init__(self, schedule: Schedule, value: int) -> None:
        self._schedule, self._value = schedule, value

    def acquire(self) -> None:
        self._schedule.switch(lambda: self._value > 0)
        self._value -= 1

    def release(self) -> None:
        self._value += 1
        self._schedule.switch()
