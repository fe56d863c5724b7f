"""`sweep`: computes many cells on workers, records each, and resumes after any interruption."""

import os
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from taut_lab.framework.experiment import Cell, Config, Experiment, Outcome
from taut_lab.framework.provenance import describe_code, describe_machine, describe_versions
from taut_lab.framework.records import Record, Records
from taut_lab.framework.timing import one_thread
from taut_lab.framework.workers import LostClusterError, LostWorkerError, Workers

_MAX_LOST_WORKERS = 3
# Cells use the global state of the process, such as torch's generator: never two at a time.
_ONE_CELL_AT_A_TIME = threading.Lock()

Run = Callable[[Config], Outcome]


@dataclass(frozen=True)
class SweepProgress:
    """Progress of a sweep."""

    done: int  # number of finished cells, including those found at the start
    failed: int  # number of failed cells
    total: int  # number of all cells
    seconds_left: float | None  # estimate from the cells so far; None before the first
    last: Record | Cell | None = None  # what has just finished, or the cell that has just failed


@dataclass
class SweepResult:
    """Result of a sweep."""

    num_found: int = 0  # number of cells that were finished before
    completed: list[Record] = field(default_factory=list)  # in the order of their ends
    failed: list[tuple[Cell, str]] = field(
        default_factory=list
    )  # the failed cells, each with the reason


def compute(run: Run, cell: Cell, data_dir: str | None = None) -> Record | str:
    """Computes a cell in this process.

    It uses one thread, and one cell at a time is computed in a process. torch's generator is seeded
    with the cell's seed and restored afterwards: the configuration alone determines the numbers.

    Returns:
        Its record, or the traceback of the error that ended it.
    """
    code = describe_code()  # before a long run during which files may change
    try:
        with (
            _ONE_CELL_AT_A_TIME,
            one_thread(),
            _data_folder_set_to(data_dir),
            torch.random.fork_rng(devices=[]),
        ):
            torch.manual_seed(cell.config["seed"])
            wall, cpu = time.perf_counter(), time.process_time()
            outcome = run(cell.config)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        record = Record(
            cell=cell,
            outcome=outcome,
            wall=round(wall, 3),
            cpu=round(cpu, 3),
            code=code,
            versions=describe_versions("torch", "numpy"),
            machine=describe_machine(),
        )
        # Plain data can be pickled anywhere, and equals what will be read from the file.
        return Record.from_json(record.to_json())
    except (Exception, SystemExit):
        return traceback.format_exc()


def sweep(
    tasks: Iterable[tuple[Experiment, Cell]],
    records: Records,
    workers: Workers,
    *,
    data_dir: str | None = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> SweepResult:
    """Computes the cells that are not finished, and writes the record of each when it ends.

    Only this function writes, and a cell is finished when its file exists: an interruption loses
    the cells in progress and nothing else. The error of a cell is written to a file beside the
    records, and the next sweep tries again. The cell of a worker that dies is submitted again, up
    to three times in all.

    Args:
        tasks: cells with their experiments, in the order in which they are started.
        records: where finished cells are looked for, and written.
        workers: workers that compute the cells.
        data_dir: folder of the datasets, on the machines of the workers.
        on_progress: called when a cell ends, and every second.
        say: called with messages for the user: a damaged record, a lost worker.

    Raises:
        LostClusterError: the scheduler of the cluster is gone.
    """
    say = say or (lambda _: None)
    wanted = {cell.key: (experiment, cell) for experiment, cell in tasks}
    finished, damaged = records.load(cell for _, cell in wanted.values())
    for sentence in damaged:
        say(f"{sentence} It is computed again.")
    result = SweepResult(num_found=len(finished))
    times = _CellTimes(finished.values())
    lost: Counter[str] = Counter()
    pending: dict[Future[Any], str] = {}

    def submit(key: str) -> None:
        experiment, cell = wanted[key]
        name = f"taut-{cell.experiment}-{key}"
        pending[workers.submit(name, compute, experiment.run, cell, data_dir)] = key

    def report(last: Record | Cell | None = None) -> None:
        if on_progress is not None:
            cells = [wanted[key][1] for key in pending.values()]
            left = times.seconds_left(cells, workers.num_workers)
            done = result.num_found + len(result.completed)
            on_progress(SweepProgress(done, len(result.failed), len(wanted), left, last))

    def fail(cell: Cell, reason: str) -> None:
        records.write_error(cell, reason)
        result.failed.append((cell, reason))
        report(cell)

    for key in wanted:
        if key not in finished:
            submit(key)
    report()
    while pending:
        ended = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED).done
        if not ended:
            report()
        for future in [each for each in pending if each in ended]:  # in the order of cells
            key = pending.pop(future)
            cell = wanted[key][1]
            try:
                answer = future.result()
            except LostClusterError:
                raise
            except LostWorkerError as error:
                lost[key] += error.times
                if lost[key] >= _MAX_LOST_WORKERS:
                    fail(cell, f"{lost[key]} workers died while computing this cell. {error}")
                else:
                    say(f"{cell.experiment} {key}: its worker died; it is computed again.")
                    submit(key)
                continue
            except Exception:
                answer = traceback.format_exc()
            if isinstance(answer, Record):
                records.write(answer)
                result.completed.append(answer)
                times.add(answer)
                report(answer)
            else:
                fail(cell, answer)
    return result


class _CellTimes:
    """Wall-clock times of finished cells, to estimate the time left."""

    def __init__(self, finished: Iterable[Record]) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.last_added = time.monotonic()
        for record in finished:
            self.add(record)

    def add(self, record: Record) -> None:
        self.seconds[record.cell.experiment].append(record.wall)
        self.last_added = time.monotonic()

    def seconds_left(self, cells: Sequence[Cell], num_workers: int) -> float | None:
        """Assumes that a cell takes the mean time of its experiment; None without any time."""
        if not self.seconds:
            return None
        mean = {name: sum(times) / len(times) for name, times in self.seconds.items()}
        overall = sum(mean.values()) / len(mean)
        work = sum(mean.get(cell.experiment, overall) for cell in cells)
        spent = time.monotonic() - self.last_added
        return max(0.0, work / max(1, min(num_workers, len(cells))) - spent)


@contextmanager
def _data_folder_set_to(folder: str | None) -> Iterator[None]:
    before = os.environ.get("TAUT_DATA")
    if folder is not None:
        os.environ["TAUT_DATA"] = folder
    try:
        yield
    finally:
        if folder is not None:
            os.environ.pop("TAUT_DATA")
            if before is not None:
                os.environ["TAUT_DATA"] = before
