"""Where cells are computed: processes of this machine, or the workers of a dask cluster."""

import logging
import multiprocessing
import os
import pickle
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from taut.errors import ArgumentError, TautError, check_count, require

__all__ = [
    "ClusterWorkers",
    "Engine",
    "LocalWorkers",
    "LostClusterError",
    "LostWorkerError",
    "open_engine",
]

_PATIENCE = 10.0  # seconds
_ADDRESS = re.compile(r"(\w+://)?[^/\s]+:\d+")


class LostWorkerError(TautError, RuntimeError):
    """A worker died while it computed.

    Attributes:
        times: how many workers the same call has cost.
    """

    def __init__(self, sentence: str, times: int = 1) -> None:
        super().__init__(sentence)
        self.times = times


class LostClusterError(TautError, ConnectionError):
    """The scheduler of a cluster has gone, and what was submitted with it."""


class Engine(Protocol):
    """Something that computes calls elsewhere, several at a time."""

    @property
    def width(self) -> int:
        """How many calls are computed at a time."""
        ...

    def submit(self, key: str, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """Computes `function(*args)` elsewhere, sooner or later.

        The future raises `LostWorkerError` where a worker died of it or under it; the call may
        then be submitted again.

        Args:
            key: a name that only equal calls share.
            function: stands at the top of a module, by which it is found.
            *args: plain data.
        """
        ...

    def close(self) -> None:
        """Drops what is under way, at once."""
        ...


@contextmanager
def open_engine(jobs: int = 1, cluster: str | None = None) -> Iterator[Engine]:
    """An engine that is closed at the end, whatever happens.

    Args:
        jobs: the number of processes of this machine.
        cluster: the address of a dask scheduler, like "tcp://host:8786", to be used instead.
    """
    engine: Engine = LocalWorkers(jobs) if cluster is None else ClusterWorkers(cluster)
    try:
        yield engine
    finally:
        engine.close()


class LocalWorkers:
    """Processes of this machine, each of which computes one call after the other.

    They are started afresh, not forked, when there is first work for them. One that dies takes
    nothing but its own call with it, and is replaced. None outlives the process that started it.

    Args:
        jobs: how many.
    """

    def __init__(self, jobs: int = 1) -> None:
        check_count("LocalWorkers", "jobs", jobs)
        self.width = jobs
        self._open = True
        self._lock = threading.Lock()
        self._workers: set[_Worker] = set()
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        # A thread for each worker waits for its answer: all that they share is the queue of idle.
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="taut-worker")

    def submit(self, key: str, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """See `Engine.submit`."""
        return self._threads.submit(self._call, function, args)

    def close(self) -> None:
        """See `Engine.close`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._open = False
            for worker in self._workers:
                worker.kill()
        self._threads.shutdown(wait=True)

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        worker = self._take()
        try:
            answer = worker.call(function, args)
        except (EOFError, OSError) as error:
            worker.kill()
            with self._lock:
                self._workers.discard(worker)
            raise LostWorkerError("the process that computed this cell died.") from error
        except BaseException:
            self._idle.put(worker)
            raise
        self._idle.put(worker)
        return answer

    def _take(self) -> "_Worker":
        with suppress(Empty):
            return self._idle.get_nowait()
        with self._lock:
            if not self._open:
                raise LostWorkerError("the engine was closed.")
            worker = _Worker()
            self._workers.add(worker)
            return worker


class _Worker:
    """One process, and the line to it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other,), daemon=True)
        with _deaf_to_interrupts():
            self.process.start()
        other.close()  # so that the line ends when the process does

    def call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self.line.send_bytes(pickle.dumps((function, args)))
        good, answer = pickle.loads(self.line.recv_bytes())
        if not good:
            raise RuntimeError(answer)
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started meanwhile leave Ctrl-C to the one that started them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it would lift the mask when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(line: Connection) -> None:
    """Answers calls until the line ends."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            call = line.recv_bytes()
            try:
                function, args = pickle.loads(call)
                answer = pickle.dumps((True, function(*args)))
            except Exception:
                answer = pickle.dumps((False, traceback.format_exc()))
            line.send_bytes(answer)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class ClusterWorkers:
    """The workers of a dask cluster, wherever they are.

    The scheduler submits again what a lost worker had; it gives a call up when that has cost more
    workers than its setting `distributed.scheduler.allowed-failures` (3) allows.

    Args:
        address: of the scheduler, like "tcp://host:8786".
    """

    def __init__(self, address: str) -> None:
        distributed = require("distributed", "cluster", "computing on a cluster")
        # What dask tells of a lost connection, in pages, is one sentence of ours. Its own import
        # sets levels, so ours comes after it.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        if not _ADDRESS.fullmatch(address):
            raise ArgumentError(
                f"ClusterWorkers: `address` must be a host and a port; got {address!r}. "
                "Use one like tcp://host:8786, which dask scheduler prints when it starts."
            )
        try:
            self._client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ArgumentError(
                f"ClusterWorkers: `address` must be that of a dask scheduler that answers; got "
                f"{address!r} ({error}). Start one with dask scheduler, and workers with dask "
                f"worker {address} --nthreads 1."
            ) from error
        self._address = address
        self._killed: type[Exception] = distributed.scheduler.KilledWorker
        self._executor = self._client.get_executor(pure=False)

    @property
    def width(self) -> int:
        """The number of workers, each of which computes one cell at a time."""
        try:
            return max(1, len(self._client.nthreads()))
        except OSError as error:
            raise self._lost() from error

    def submit(self, key: str, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """See `Engine.submit`."""
        inner = self._executor.submit(function, *args, key=key)
        outer: Future[Any] = Future()

        def pass_on(done: "Future[Any]") -> None:
            if done.cancelled():
                error: BaseException | None = self._lost()
            else:
                error = done.exception()
            if isinstance(error, self._killed):
                error = LostWorkerError("the scheduler gave it up.", times=error.args[2] + 1)
            if error is not None:
                outer.set_exception(error)
            else:
                outer.set_result(done.result())

        inner.add_done_callback(pass_on)
        return outer

    def close(self) -> None:
        """See `Engine.close`."""
        self._executor.shutdown(wait=False)
        self._client.close(timeout=_PATIENCE)

    def _lost(self) -> LostClusterError:
        return LostClusterError(
            f"ClusterWorkers: the scheduler at {self._address} must stay until the end; it is "
            "gone. What is finished is kept: start it and the command again."
        )
