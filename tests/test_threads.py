"""The pool covers every index once, raises what a piece raises, survives forks, nesting, concurrent calls."""

import os
import threading
import time

import pytest

from lpsim import threads


@pytest.fixture(autouse=True)
def restore():
    before = threads.get_threads()
    yield
    threads.set_threads(before)


def covered(total, grain):
    """How often each index was visited, and the pieces seen."""
    counts, pieces = [0] * total, []

    def body(start, stop):
        pieces.append((start, stop))
        for i in range(start, stop):
            counts[i] += 1

    threads.parallel_for(body, total, grain)
    return counts, sorted(pieces)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(("total", "grain"), [(0, 1), (1, 1), (7, 3), (64, 64), (100, 7), (3, 10)])
def test_every_index_once_and_pieces_independent_of_threads(n, total, grain):
    threads.set_threads(n)
    counts, pieces = covered(total, grain)
    assert counts == [1] * total
    assert pieces == [(i, min(i + grain, total)) for i in range(0, total, grain)]


def test_two_threads_work_at_the_same_time():
    threads.set_threads(2)
    meeting = threading.Barrier(2, timeout=20)  # broken, and so an error, unless two pieces run at once
    threads.parallel_for(lambda start, stop: meeting.wait(), 2, 1)


def test_one_thread_means_the_calling_thread():
    threads.set_threads(1)
    seen = set()
    threads.parallel_for(lambda start, stop: seen.add(threading.get_ident()), 10, 1)
    assert seen == {threading.get_ident()}


@pytest.mark.parametrize("n", [1, 3])
def test_an_error_in_a_piece_is_raised_and_stops_the_rest(n):
    threads.set_threads(n)
    begun = []

    def body(start, stop):
        begun.append(start)
        if start == 2:
            raise KeyError("piece 2")
        time.sleep(0.001)

    with pytest.raises(KeyError, match="piece 2"):
        threads.parallel_for(body, 1000, 1)
    assert len(begun) < 1000
    assert covered(10, 1)[0] == [1] * 10  # the pool is still usable


def test_nested_calls_end():
    threads.set_threads(2)
    total = []

    def outer(start, stop):
        threads.parallel_for(lambda i, j: threads.parallel_for(lambda k, m: total.append(k), 4, 1), 4, 1)

    threads.parallel_for(outer, 8, 1)
    assert len(total) == 8 * 4 * 4


def test_concurrent_callers_end_with_the_right_counts():
    threads.set_threads(2)
    results = []

    def caller():
        for _ in range(50):
            results.append(covered(50, 3)[0] == [1] * 50)

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(60)
    assert not any(thread.is_alive() for thread in callers)
    assert results == [True] * 200


def test_set_threads_while_a_call_runs():
    threads.set_threads(2)
    counts = [0] * 40

    def body(start, stop):
        threads.set_threads(1 + start % 3)
        counts[start] += 1

    threads.parallel_for(body, 40, 1)
    assert counts == [1] * 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_makes_its_own_pool():
    threads.set_threads(2)
    test_two_threads_work_at_the_same_time()  # the parent's pool is alive
    holding = threading.Event()
    release = threading.Event()

    def hold():  # fork while another thread holds the pool's lock
        with threads._lock:
            holding.set()
            release.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait(30)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            test_two_threads_work_at_the_same_time()
            status = 0 if covered(100, 7)[0] == [1] * 100 else 2
        finally:
            os._exit(status)
    release.set()
    holder.join(30)
    deadline = time.monotonic() + 60
    done, status = os.waitpid(child, os.WNOHANG)
    while done == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
        done, status = os.waitpid(child, os.WNOHANG)
    if done == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert done == child, "the child hung"
    assert os.waitstatus_to_exitcode(status) == 0
    test_two_threads_work_at_the_same_time()


def test_default_is_what_the_process_may_use(monkeypatch):
    monkeypatch.setattr(threads, "_threads", None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert threads.get_threads() == 3


@pytest.mark.parametrize("n", [0, -1])
def test_a_number_of_threads_below_one_is_refused(n):
    with pytest.raises(ValueError, match="at least one"):
        threads.set_threads(n)


@pytest.mark.parametrize("n", [1.0, "2", None, True])
def test_a_number_of_threads_is_an_int(n):
    with pytest.raises(TypeError, match="must be an int"):
        threads.set_threads(n)


@pytest.mark.parametrize(("total", "grain"), [(-1, 1), (1, 0)])
def test_sizes_are_checked(total, grain):
    with pytest.raises(ValueError, match="grain"):
        threads.parallel_for(lambda start, stop: None, total, grain)
