"""Check with Porcupine that the registers of the store, including their final state in the log, are linearizable.

The number of the property is `LINEARIZABLE`, after those of `tests.history.check_log`. The module
`tests.chaos.kv.written` checks writes that were overwritten before any client read them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from key_value_store.errors import VersionMismatchError
from tests.chaos.kv.written import written
from tests.history.operations import FAIL, OK, Operation
from tests.history.records import Found
from tests.history.violation import Violation
from tests.porcupine.checking import linearizable

LINEARIZABLE = 16
SECONDS = 120
"""The time limit for all keys of a run. If a check takes longer, it raises an error and gives no verdict."""
_OPERATIONS = ("read", "write", "transact")


def judge(history: Sequence[Operation], log: Mapping[int, Sequence[Found]]) -> list[Violation]:
    """Return the violations. Raises CheckerFailedError, also if the time limit is too short."""
    verdict = linearizable(registers(history, log), SECONDS)
    found = [] if verdict.linearizable else [Violation(LINEARIZABLE, verdict.told.replace("\n", "; "))]
    return [*found, *written(history, log)]


def registers(history: Sequence[Operation], log: Mapping[int, Sequence[Found]]) -> list[dict[str, Any]]:
    """Return the history in the format of ``tests/porcupine/main.go``, with a final read of each key from the log."""
    operations = [each for each in history if each.name in _OPERATIONS]
    numbers = {name: at for at, name in enumerate(sorted({each.process for each in operations}))}
    told = [line for each in operations if (line := _line(each, numbers[each.process]))]
    keys = {step["key"] for line in told for step in line["steps"]}
    end = max((max(each.start_ns, each.end_ns or 0) for each in operations), default=0)
    return [*told, *_reads_of(log, sorted(keys), end + 1, len(numbers))]


def _line(each: Operation, process: int) -> dict[str, Any] | None:
    mismatch = each.result.get("kind") == VersionMismatchError.kind
    if (each.outcome == FAIL and not mismatch) or (each.name == "read" and each.outcome != OK):
        return None
    steps = [_step(step, each.result) for step in each.arguments["steps"]]
    if mismatch:
        key, version = each.result["key"], each.result["actual"]
        steps = [step | {"version": version} for step in steps if step["key"] == key and "expected" in step]
        if not steps:
            return None
    returned = each.end_ns if each.outcome == OK or mismatch else None
    return {"process": process, "call": each.start_ns, "return": returned, "steps": steps, "mismatch": mismatch}


def _step(asked: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    if asked["op"] == "get":
        return {**asked, "value": result["value"], "version": result["version"]}
    return {**asked, "version": result.get("versions", {}).get(asked["key"])}


def _reads_of(
    log: Mapping[int, Sequence[Found]], keys: Sequence[str], at_ns: int, process: int
) -> Iterator[dict[str, Any]]:
    newest = {found.record.key: found for records in log.values() for found in records}
    for key in keys:
        found = newest.get(key)
        # A record without a value deletes its key, and is read as an empty value. Clients write no empty values.
        held = found if found is not None and found.record.value else None
        step = {
            "op": "get",
            "key": key,
            "value": held.record.value if held else "",
            "version": held.offset if held else None,
        }
        yield {"process": process, "call": at_ns, "return": at_ns + 1, "steps": [step], "mismatch": False}
