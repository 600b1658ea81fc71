"""One attempt at an append, and its result for the history: ok, a definite failure, or unknown."""

from collections.abc import Mapping
from typing import Any

from spark_cas.core.errors import ConditionalLogError, InputError, RefusedError
from spark_cas.core.outcome import Appended, Conflict, KeyConflict, Outcome, Unknown, error_of
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_once import append_once
from tests.chaos.loading import Told, load, table_of
from tests.history.operations import FAIL, INFO, OK
from tests.support.faults import InjectedFaultError


def ask(log: Backend, arguments: Mapping[str, Any], run: str) -> Told:
    """Append the records in the arguments of an operation, and return the result.

    The arguments are those of `tests.history.jobs.Job`. ``run`` is the name of this attempt. An exception
    that is not an error of spark_cas is a defect and is raised.
    """
    held: dict[str, Any] = {}
    try:
        if arguments["chunk_records"] is not None:
            return load(log, arguments, run, held)
        outcomes = _append(log, arguments)
    except ConditionalLogError as error:
        definite = isinstance(error, RefusedError | InputError)
        return (FAIL if definite else INFO), {"kind": str(error.kind), "told": error.message} | held
    except InjectedFaultError:
        return INFO, {"kind": "LOST"}
    return _told(outcomes)


def _told(outcomes: Mapping[int, Outcome]) -> Told:
    if all(isinstance(each, Appended) for each in outcomes.values()):
        ranges = {str(at): _range(each) for at, each in outcomes.items()}
        return OK, {"ranges": ranges, "resolved": any(_resolved(each) for each in outcomes.values())}
    # If several partitions have results, report a rejection. A conflict is more specific than the others.
    at, outcome = min(outcomes.items(), key=lambda each: not isinstance(each[1], Conflict))
    match outcome:
        case Unknown():
            return INFO, {"kind": "UNKNOWN_OUTCOME", "told": outcome.cause}
        case KeyConflict():
            return FAIL, {"kind": "KEY_CONFLICT", "told": str(outcome)}
        case Appended():
            raise AssertionError(f"some partitions were appended to and others were not: {outcomes}")
        case _:
            error = error_of(outcome, at)
            return FAIL, {"kind": str(error.kind), "told": error.message}


def _range(outcome: Outcome) -> list[int]:
    assert isinstance(outcome, Appended)
    return [outcome.range.base_offset, outcome.range.end_offset]


def _resolved(outcome: Outcome) -> bool:
    return isinstance(outcome, Appended) and outcome.resolved


def _append(log: Backend, arguments: Mapping[str, Any]) -> Mapping[int, Outcome]:
    records = {int(at): table_of(rows) for at, rows in arguments["records"].items()}
    expected: dict[int, int | None] = {int(at): offset for at, offset in arguments["expected"].items()}
    job = arguments["job"]
    if len(expected) > 1:
        return append_once(log, records, job=job, expected_offset=expected)
    [(partition, table)] = records.items()
    compare = arguments["compare"]
    return {
        partition: append_once(log, partition, table, job=job, expected_offset=expected[partition], compare=compare)
    }
