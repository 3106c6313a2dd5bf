"""A small pool of threads over loops that release the interpreter lock.

Work is cut into pieces that depend on its size alone, never on the number of threads, and every piece writes
its own part of the result: so the bits are the same for any number of threads. The calling thread works too
and waits only for pieces that another thread has begun; with no helper free it does everything itself.
Nested and concurrent calls therefore cannot wait for each other in a circle.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_lock = threading.Lock()
_threads: int | None = None  # None: not yet read from the system
_pool: ThreadPoolExecutor | None = None


def _forget_pool() -> None:
    """A forked child has none of its parent's threads, and a lock that another thread held stays locked."""
    global _lock, _pool
    _lock, _pool = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def get_threads() -> int:
    """Threads that share one call; at first use the cores that this process may use."""
    global _threads
    if _threads is None:
        _threads = _usable_cores()
    return _threads


def set_threads(n: int) -> None:
    """Let n threads share each call from now on; the results stay the same.

    Raises TypeError unless n is an int, ValueError unless n >= 1.
    """
    global _threads, _pool
    if type(n) is not int:
        raise TypeError(f"n={n!r} must be an int.")
    if n < 1:
        raise ValueError(f"n={n}: at least one thread is needed.")
    with _lock:
        # The old pool is dropped, not shut down: calls that use it finish, then its threads end.
        _threads, _pool = n, None


def _helpers(count: int) -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(count, thread_name_prefix="lpsim")
        return _pool


class _Job:
    """Pieces 0 .. count - 1 of one call, handed out one at a time."""

    def __init__(self, body: Callable[[int, int], object], total: int, grain: int):
        self.body, self.total, self.grain = body, total, grain
        self.count = -(-total // grain)
        self.next = 0
        self.running = 0
        self.error: BaseException | None = None
        self.changed = threading.Condition()

    def work(self) -> None:
        """Run pieces until none is left to begin."""
        while (piece := self._begin()) is not None:
            start = piece * self.grain
            try:
                self.body(start, min(start + self.grain, self.total))
            except BaseException as error:  # handed to the calling thread by `finish`
                self._end(error)
            else:
                self._end(None)

    def _begin(self) -> int | None:
        with self.changed:
            if self.next >= self.count:
                return None
            self.next += 1
            self.running += 1
            return self.next - 1

    def _end(self, error: BaseException | None) -> None:
        with self.changed:
            self.running -= 1
            if error is not None:
                self.next = self.count  # begin no more pieces
                self.error = self.error or error
            if self.running == 0:
                self.changed.notify_all()

    def finish(self) -> None:
        """Wait for the pieces that others have begun; raise the first error of any piece."""
        with self.changed:
            while self.running:
                self.changed.wait()
        if self.error is not None:
            raise self.error


def parallel_for(body: Callable[[int, int], object], total: int, grain: int) -> None:
    """Call body(start, stop) on [0, grain), [grain, 2 grain), .. up to total, shared among the threads.

    body must release the interpreter lock to gain anything, and write only what belongs to its own range.
    The pieces run in no particular order. The first error in any piece is raised here, once all begun pieces
    have ended. Raises ValueError unless total >= 0 and grain >= 1.
    """
    if total < 0 or grain < 1:
        raise ValueError(f"total={total} must not be negative and grain={grain} must be positive.")
    threads = get_threads()
    job = _Job(body, total, grain)
    try:
        for _ in range(min(threads, job.count) - 1):
            _helpers(threads - 1).submit(job.work)
    except RuntimeError:
        pass  # no new thread to be had (a limit, or the interpreter is ending): go on with those there are
    job.work()
    job.finish()
