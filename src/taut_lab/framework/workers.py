"""Workers that compute cells: processes of this machine, or the workers of a dask cluster."""

import logging
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Protocol

from loky import ProcessPoolExecutor
from loky.process_executor import BrokenProcessPool, ShutdownExecutorError

from taut.errors import ArgumentError, TautError, check_count

_TIMEOUT = 10.0  # seconds
_ADDRESS = re.compile(r"(\w+://)?[^/\s]+:\d+")


class LostWorkerError(TautError, RuntimeError):
    """A worker died while it was computing; `times` is the number of lost workers for the same call."""

    def __init__(self, times: int = 1, **fields: Any) -> None:
        super().__init__(**fields)
        self.times = times


class LostClusterError(TautError, ConnectionError):
    """The scheduler of a cluster is gone, and with it everything that was submitted."""


class Workers(Protocol):
    """Computes calls in other processes, several at a time."""

    @property
    def num_workers(self) -> int:
        """Number of calls that are computed at a time."""
        ...

    def submit(self, key: str, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """Computes `function(*args)` in another process.

        The future raises `LostWorkerError` if its worker died; the call may be submitted again.

        Args:
            key: a name that only equal calls share.
            function: a function at the top level of a module, so that workers can import it.
            *args: plain data.
        """
        ...

    def close(self) -> None:
        """Stops all workers at once, and discards the calls that are not finished."""
        ...


@contextmanager
def open_workers(jobs: int = 1, cluster: str | None = None) -> Iterator[Workers]:
    """Processes of this machine, or the workers of the dask scheduler at `cluster`, in a `with` block."""
    workers: Workers = LocalWorkers(jobs) if cluster is None else ClusterWorkers(cluster)
    with warnings.catch_warnings():
        # Between two cells, loky replaces a process that has grown; the cells do not notice.
        warnings.filterwarnings("ignore", "A worker was restarted", UserWarning)
        try:
            yield workers
        finally:
            workers.close()


class LocalWorkers:
    """Processes of this machine, each of which computes one call after the other.

    A process that dies costs only its own call, and is replaced: a loky executor ends all of its
    processes with one that dies, so each process has an executor of its own. No process outlives
    the one that started it.
    """

    def __init__(self, jobs: int = 1) -> None:
        check_count("LocalWorkers", "jobs", jobs)
        self.num_workers = jobs
        self._closed = False
        self._idle: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
        self._all = [_start() for _ in range(jobs)]
        for executor in self._all:
            self._idle.put(executor)
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="taut-worker")

    def submit(self, key: str, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """See `Workers.submit`."""
        return self._threads.submit(self._call, function, args)

    def close(self) -> None:
        """See `Workers.close`."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for executor in self._all:
            executor.shutdown(kill_workers=True)

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        executor = self._idle.get()
        try:
            return executor.submit(function, *args).result()
        except (BrokenProcessPool, ShutdownExecutorError) as error:
            executor.shutdown(kill_workers=True)
            if not self._closed:
                self._all.remove(executor)
                executor = _start()
                self._all.append(executor)
            raise LostWorkerError(rule="the process that computed this cell died") from error
        finally:
            self._idle.put(executor)


def _start() -> ProcessPoolExecutor:
    # Idle processes stay: importing torch again costs seconds.
    return ProcessPoolExecutor(1, timeout=None, initializer=_prepare, initargs=(os.getpid(),))


def _prepare(parent: int) -> None:
    """Leaves Ctrl-C to the parent process, and ends this process when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _refusal(rule: str, got: str, remedy: str) -> ArgumentError:
    subject, argument = "ClusterWorkers", "address"
    return ArgumentError(subject, argument, rule, got, remedy)


class ClusterWorkers:
    """The workers of a dask cluster.

    The scheduler submits the call of a lost worker again, and gives up after more losses than its
    setting `distributed.scheduler.allowed-failures` (3).
    """

    def __init__(self, address: str) -> None:
        # Imported here: it takes a second, and most sweeps are local.
        import distributed
        from distributed.scheduler import KilledWorker

        # dask logs pages about a lost connection; here it becomes one sentence.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        if not _ADDRESS.fullmatch(address):
            remedy = "Use one like tcp://host:8786, which dask scheduler prints when it starts."
            raise _refusal("must be a host and a port", repr(address), remedy)
        try:
            self._client = distributed.Client(address, timeout=_TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            remedy = "Start one with dask scheduler, and workers with dask worker"
            remedy = f"{remedy} {address} --nthreads 1."
            rule = "must be that of a running dask scheduler"
            raise _refusal(rule, f"{address!r} ({error})", remedy) from error
        self._address = address
        self._killed: type[Exception] = KilledWorker
        self._executor = self._client.get_executor(pure=False)

    @property
    def num_workers(self) -> int:
        """The number of workers, each of which computes one cell at a time."""
        try:
            return max(1, len(dict(self._client.nthreads())))  # pyright: ignore
        except OSError as error:
            raise self._lost() from error

    def submit(self, key: str, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """See `Workers.submit`."""
        inner = self._executor.submit(function, *args, key=key)
        outer: Future[Any] = Future()

        def pass_on(done: "Future[Any]") -> None:
            error = self._lost() if done.cancelled() else done.exception()
            if isinstance(error, self._killed):
                error = LostWorkerError(error.args[2] + 1, rule="the scheduler gave up on it")
            if error is not None:
                outer.set_exception(error)
            else:
                outer.set_result(done.result())

        inner.add_done_callback(pass_on)
        return outer

    def close(self) -> None:
        """See `Workers.close`."""
        self._executor.shutdown(wait=False)
        self._client.close(timeout=_TIMEOUT)

    def _lost(self) -> LostClusterError:
        return LostClusterError(
            subject="ClusterWorkers",
            rule=f"the scheduler at {self._address} must run until the end; it is gone",
            remedy="Finished cells are kept: start the scheduler and run the command again.",
        )
