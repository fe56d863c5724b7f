"""Many cells: computed on an engine, recorded one by one, gone on with after any stop."""

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

from taut.data.known import KNOWN, data_folder
from taut.lab.engines import Engine, LostClusterError, LostWorkerError
from taut.lab.experiment import Cell, Config, Experiment, Outcome
from taut.lab.provenance import describe_code, describe_machine, describe_versions
from taut.lab.records import Record, Records
from taut.lab.timing import one_thread

__all__ = ["Moment", "Swept", "compute", "missing_data", "sweep"]

# A cell that takes its worker with it so often does it always.
_LIVES = 3
# Cells borrow what a process has once, such as torch's generator: two threads must not share it.
_ALONE = threading.Lock()

Run = Callable[[Config], Outcome]


@dataclass(frozen=True)
class Moment:
    """How far a sweep is.

    Attributes:
        done: cells that are finished, now or before.
        failed: cells that could not be computed.
        total: all cells.
        seconds_left: a guess from the cells so far; None before the first.
        last: what has just ended, if anything has: a record, or a cell that failed.
    """

    done: int
    failed: int
    total: int
    seconds_left: float | None
    last: Record | Cell | None = None


@dataclass
class Swept:
    """What a sweep did.

    Attributes:
        before: the number of cells that were finished before.
        ran: the records of this sweep, in the order in which they ended.
        failed: the cells that could not be computed, and why.
    """

    before: int = 0
    ran: list[Record] = field(default_factory=list)
    failed: list[tuple[Cell, str]] = field(default_factory=list)


def compute(run: Run, cell: Cell, data_dir: str | None = None) -> Record | str:
    """Computes a cell here and now.

    One thread, and one cell at a time in a process. torch's generator is given the cell's seed and
    set back after, so that nothing but the configuration decides the numbers.

    Args:
        run: what the cell's experiment has under this name.
        cell: what to compute.
        data_dir: where data sets are; None leaves it to the variable `TAUT_DATA`.

    Returns:
        Its record; or the traceback, if an error ended it.
    """
    code = describe_code()  # before a long run in which files may change
    try:
        with _ALONE, one_thread(), _data_at(data_dir), torch.random.fork_rng(devices=[]):
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
        # Plain data crosses every border, and is what will be read again.
        return Record.from_json(record.to_json())
    except (Exception, SystemExit):
        return traceback.format_exc()


def missing_data(names: Sequence[str], data_dir: str | None = None) -> list[str]:
    """A sentence for each data set that is not where it should be.

    Args:
        names: as `Experiment.needs` has them: a known data set, or else a folder or file.
        data_dir: where to look; None leaves it to the variable `TAUT_DATA`.
    """
    folder = data_folder(data_dir)
    sentences = []
    for name in names:
        known = KNOWN.get(name)
        if known is None:
            if name != "digits" and not (folder / name).exists():
                sentences.append(f"{folder / name} is not there; pass --data-dir or set TAUT_DATA.")
        elif any(known.find(file, folder) is None for file in known.files):
            sentences.append(
                f"{known.title} is not in {folder}; pass --data-dir or set TAUT_DATA, or fetch it: "
                f"taut data fetch {name}."
            )
    return sentences


def sweep(
    tasks: Iterable[tuple[Experiment, Cell]],
    records: Records,
    engine: Engine,
    *,
    data_dir: str | None = None,
    on_moment: Callable[[Moment], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Swept:
    """Computes what is not finished yet, and writes the record of each cell when it ends.

    Only this function writes, and a cell is finished when its file is there: whoever stops the
    process loses the cells that are under way, and nothing else. A cell that raises an error is
    told of in a file beside the records, and is tried again by the next sweep. One whose worker
    dies is submitted again, up to three times in all.

    Args:
        tasks: cells, each with its experiment; in this order they are begun.
        records: where to write, and to look for what is finished.
        engine: computes them.
        data_dir: where data sets are, on the machines of the engine.
        on_moment: called when a cell ends, and every second.
        say: called with sentences for people: a damaged record, a lost worker.

    Raises:
        LostClusterError: the scheduler of the engine's cluster has gone.
    """
    say = say or (lambda _: None)
    wanted = {cell.key: (experiment, cell) for experiment, cell in tasks}
    found, damaged = records.load(cell for _, cell in wanted.values())
    for sentence in damaged:
        say(f"{sentence} It is computed again.")
    swept = Swept(before=len(found))
    guess = _Guess(found.values())
    lost: Counter[str] = Counter()
    pending: dict[Future[Any], str] = {}

    def submit(key: str) -> None:
        experiment, cell = wanted[key]
        name = f"taut-{cell.experiment}-{key}"
        pending[engine.submit(name, compute, experiment.run, cell, data_dir)] = key

    def tell(last: Record | Cell | None = None) -> None:
        if on_moment is not None:
            left = guess.seconds([wanted[key][1] for key in pending.values()], engine.width)
            done = swept.before + len(swept.ran)
            on_moment(Moment(done, len(swept.failed), len(wanted), left, last))

    def fail(cell: Cell, story: str) -> None:
        records.write_error(cell, story)
        swept.failed.append((cell, story))
        tell(cell)

    for key in wanted:
        if key not in found:
            submit(key)
    tell()
    while pending:
        ended = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED).done
        if not ended:
            tell()
        for future in [each for each in pending if each in ended]:  # in the order of cells
            key = pending.pop(future)
            cell = wanted[key][1]
            try:
                answer = future.result()
            except LostClusterError:
                raise
            except LostWorkerError as error:
                lost[key] += error.times
                if lost[key] >= _LIVES:
                    fail(cell, f"{lost[key]} workers died while they computed this cell. {error}")
                else:
                    say(f"{cell.experiment} {key}: its worker died; it is computed again.")
                    submit(key)
                continue
            except Exception:
                answer = traceback.format_exc()
            if isinstance(answer, Record):
                records.write(answer)
                swept.ran.append(answer)
                guess.add(answer)
                tell(answer)
            else:
                fail(cell, answer)
    return swept


class _Guess:
    """How long cells take: as long as those of their experiment that have ended, on average."""

    def __init__(self, found: Iterable[Record]) -> None:
        self.taken: defaultdict[str, list[float]] = defaultdict(list)
        self.since = time.monotonic()
        for record in found:
            self.add(record)

    def add(self, record: Record) -> None:
        self.taken[record.cell.experiment].append(record.wall)
        self.since = time.monotonic()

    def seconds(self, cells: Sequence[Cell], width: int) -> float | None:
        if not self.taken:
            return None
        mean = {name: sum(times) / len(times) for name, times in self.taken.items()}
        usual = sum(mean.values()) / len(mean)
        work = sum(mean.get(cell.experiment, usual) for cell in cells)
        spent = time.monotonic() - self.since
        return max(0.0, work / max(1, min(width, len(cells))) - spent)


@contextmanager
def _data_at(folder: str | None) -> Iterator[None]:
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
