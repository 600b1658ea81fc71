"""Cancellation of a run: a task with a definite error records it in the log, and the other tasks stop.

Spark retries a task that raises an error. A task therefore returns a definite error in its commit message, and the
other tasks would run to their end. All tasks of a run can reach the log, in local mode, on a cluster and on Spark
Connect. The first task with a definite error puts an entry for the run into the log. Each task checks for this entry
before a chunk, at most every `Timing.cancel_check`. The driver removes the entry when the run ends.

The entry names the run, not the job, so that it does not stop another run of the same job. A missing or unreadable
entry never fails a task, because no guarantee depends on it.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeVar

import pyarrow as pa

from spark_cas.core.errors import ConditionalLogError, ErrorKind, error_from_line
from spark_cas.core.outcome import Appended, Tally
from spark_cas.core.plan import Progress
from spark_cas.core.recorded_fields import from_json, in_format, to_json
from spark_cas.log import clock, timing
from spark_cas.log.deadline import within
from spark_cas.log.protocol import Registry

_Item = TypeVar("_Item")

_next_check: dict[str, float] = {}
"""The time of this process's next check, on the monotonic clock, for the run that it checked last."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A definite error of one task, as data: it ends the whole run."""

    kind: str
    message: str
    """The text of the error after its kind, with its fields."""
    partitions: tuple[int, ...]
    """The log partitions of the rows that the task had read before the error."""

    @classmethod
    def of(cls, error: ConditionalLogError, partitions: tuple[int, ...]) -> Self:
        return cls(error.kind, str(error).removeprefix(f"[{error.kind}] "), partitions)

    def error(self) -> ConditionalLogError:
        return error_from_line(self.kind, self.message)


def rejection_from_json(text: str) -> Rejection:
    """Parse the JSON of a rejection; raise FormatError for other text."""
    with in_format("the record of a cancelled run"):
        rejection = from_json(Rejection, text)
        ErrorKind(rejection.kind)
        return rejection


class RunCancelledError(Exception):
    """Another task of the same run found a definite error.

    The task does not retry, and the user never sees this error.
    """

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection


class TaskRun:
    """The state of a run in one attempt of a task: whether it is cancelled, and the rows it has appended."""

    def __init__(self, name: str = "", began_ms: int = 0, rows_before: Sequence[int] | None = ()) -> None:
        """Start with no rows. A run without a name is never cancelled.

        ``began_ms`` is the time of the plan, in milliseconds since 1970. ``rows_before`` are the rows of the job in
        each partition before the run; empty if there were none, None if not known.
        """
        self._name = name
        self._began_ms = began_ms
        self._rows_before = rows_before
        self._appended: dict[int, int | None] = {}
        self.tally = Tally()
        """The chunks that this attempt appended."""

    @property
    def appended(self) -> tuple[tuple[int, int | None], ...]:
        """The rows that the run appended to the partitions of this task, as (partition, rows); None if not known."""
        return tuple(sorted(self._appended.items()))

    def count(self, progress: Progress | None) -> None:
        """Count the rows in a ledger entry that other attempts of this task appended in the same run."""
        if progress is not None and is_of_run(progress, self._name):
            self._appended[progress.partition] = rows_since(progress, self._rows_before)

    def add(self, partition: int, outcome: Appended, records: pa.Table) -> None:
        before = self._appended.get(partition, 0)
        self._appended[partition] = None if before is None else before + records.num_rows
        self.tally = self.tally.and_then(outcome, records)

    def restart(self) -> None:
        """Forget the appended rows, because the transaction with them was aborted."""
        self._appended.clear()
        self.tally = self.tally.restarted()

    def checked(self, log: Registry, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items, with a `check` before each."""
        for item in items:
            self.check(log)
            yield item

    def check(self, log: Registry) -> None:
        """Raise RunCancelledError if another task cancelled the run. Most calls send no request."""
        if not self._name or not self._is_due():
            return
        rejection = None
        with suppress(ConditionalLogError), within(timing.current().cancel_check):
            text = log.entry("cancelled", self._name)
            rejection = None if text is None else rejection_from_json(text)
        if rejection is not None:
            raise RunCancelledError(rejection)

    def _is_due(self) -> bool:
        """Return whether this process must check now. Its first check of a run waits until the run is old enough."""
        now, check = time.monotonic(), timing.current().cancel_check
        if self._name not in _next_check:
            age = (clock.now_ms() - self._began_ms) / 1000
            _next_check.clear()
            # Clock skew shifts the period without checks; it does not extend it.
            _next_check[self._name] = now + (check - age if 0 <= age < check else 0)
        if now < _next_check[self._name]:
            return False
        _next_check[self._name] = now + check
        return True


def rows_since(progress: Progress, rows_before: Sequence[int] | None) -> int | None:
    """Return the rows that a ledger entry has in addition to those before the run; None if not known."""
    if rows_before is None:
        return None
    return max(0, progress.rows - (rows_before[progress.partition] if rows_before else 0))


def cancel_run(log: Registry, run: str, rejection: Rejection) -> None:
    """Record that a run is cancelled, unless it is already. Raises StorageError, FormatError."""
    log.put_entry("cancelled", run, to_json(rejection))


def is_of_run(progress: Progress, run: str) -> bool:
    """Return whether a task of the run appended the newest chunk of a ledger entry."""
    return progress.task.rpartition("/")[0] == run
