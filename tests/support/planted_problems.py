"""Problems of a log that tests plant, and the report of `spark-cas doctor` on them."""

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.load_locks import LoadLock
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_micro_batch import begin_stream
from spark_cas.log.load.atomic_load import with_group
from spark_cas.log.load.locking import process_name
from spark_cas.log.load.planning import pin_plan
from tests.support.programs import run_cli
from tests.support.writing import JobWriter

END = ExpectedOffsets.parse("end")


@dataclass(frozen=True)
class Report:
    """The report of one run."""

    code: int
    status: str
    environment: dict[str, Any]
    problems: dict[str, list[dict[str, Any]]]
    """The findings by problem."""

    @property
    def urgent(self) -> dict[str, list[dict[str, Any]]]:
        """The findings that are no information."""
        return {
            name: [each for each in found if each["severity"] != "info"]
            for name, found in self.problems.items()
            if any(each["severity"] != "info" for each in found)
        }


def report_on(*log: str) -> Report:
    """Run ``spark-cas doctor --json`` on a log, given by its arguments."""
    ended = run_cli("doctor", *log, "--json")
    assert not ended.err, ended.err
    result = json.loads(ended.out)
    problems = defaultdict(list)
    for each in result["findings"]:
        assert each["fix"], each
        assert not re.search(r"\bLOG\b", each["fix"]), each
        problems[each["problem"]].append(each)
    return Report(ended.code, result["status"], result["environment"], dict(problems))


def only(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the only finding of a problem."""
    [finding] = found
    return finding


def lock_of_ended_process(log: Backend) -> None:
    """Record the load lock of a process that has ended without releasing it."""
    with subprocess.Popen(["sleep", "60"]) as process:
        name = process_name(process.pid)
        process.kill()
    lock = LoadLock("locked", "run", ((0, 1),), name, clock.now_ms())
    assert log.put_load_locks(log.load_locks().with_lock(lock))


def unfinished_expansion(log: Backend) -> None:
    """Begin an expansion as a process that is killed then."""
    layout = log.layout()
    log.begin_expansion(layout, layout.partitions + 2)


def unfinished_job(log: Backend) -> None:
    """Append a chunk of a load that is killed then."""
    JobWriter(log, pin_plan(log, "killed", END)).must_append("a", "b")


def undecided_load(log: Backend) -> None:
    """Append a chunk of an atomic load that is killed then."""
    JobWriter(log, with_group(log, pin_plan(log, "whole", END, whole=True))).must_append("a")


def idle_stream(log: Backend) -> None:
    """Begin a stream that is stopped then."""
    begin_stream(log, "copied", ExpectedOffsets.parse("none"))
