"""Whether the log holds what clients of the store were told of their writes, whether anybody read it or not.

19. A write that was acknowledged lies in the log once, at the version that was told; one that nobody heard the end of
    once or not at all, and of a transaction all where a value of it is there; what definitely failed is nowhere, and
    beside these there are leader records alone. Who was told of another version than the one that was expected was
    told one that the key had.

Values are unique, so a value names its write, and one pass over the log is enough. Deletions of a key are all alike:
at least as many are there as were acknowledged, and at most as many more as nobody heard of.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spark_cas.core.errors import ErrorKind
from spark_cas.core.partitioner import partition_of_key
from spark_cas.kv.records import LEADER_KEY
from spark_cas.testing.history import FAIL, OK, Found, Operation, Record, Violation
from tests.chaos.kv.keys import SHARDS

WRITTEN = 19
_WRITES = ("put", "cas", "delete", "remove")

Places = Mapping[tuple[int, int], Record]
"""What lies in a shard at an offset."""


def written(history: Sequence[Operation], log: Mapping[int, Sequence[Found]]) -> Iterator[Violation]:
    """What of a log was told otherwise. Linear in the records of the log and the operations of the history."""
    places = {(shard, found.offset): found.record for shard, records in log.items() for found in records}
    there = Counter(
        found.record for records in log.values() for found in records if found.record.key != LEADER_KEY.decode()
    )
    least, most = Counter[Record](), Counter[Record]()
    for each in history:
        if each.name not in ("write", "transact"):
            continue
        if each.result.get("kind") == ErrorKind.VERSION_MISMATCH:
            yield from _mismatch(each, places)
        if each.outcome == FAIL:
            continue
        records = [_record(step) for step in each.arguments["steps"] if step["op"] in _WRITES]
        most.update(records)
        if each.outcome == OK:
            least.update(records)
            yield from _versions(each, records, places)
        elif any(there[record] for record in records if record.value):
            # Some of it took place, so all of it did.
            least.update(records)
    for record in most | there:
        if not least[record] <= there[record] <= most[record]:
            told = f"{least[record]} acknowledged and {most[record] - least[record]} not heard of"
            yield Violation(WRITTEN, f"{record} is in the log {there[record]} times, of {told}")


def _record(step: Mapping[str, Any]) -> Record:
    return Record(step["key"], step.get("value", ""))


def _at(places: Places, key: str, version: int) -> Record | None:
    return places.get((partition_of_key(key.encode(), SHARDS), version))


def _versions(told: Operation, records: Sequence[Record], places: Places) -> Iterator[Violation]:
    for record in records:
        version = told.result["versions"][record.key]
        found = _at(places, record.key, version)
        if found != record:
            yield Violation(WRITTEN, f"{told.process} was told that {record} is at {version}, and there is {found}")


def _mismatch(told: Operation, places: Places) -> Iterator[Violation]:
    key, actual = told.result["key"], told.result["actual"]
    expected = [step["expected"] for step in told.arguments["steps"] if step["key"] == key and "expected" in step]
    found = None if actual is None else _at(places, key, actual)
    had = actual is None or (found is not None and found.key == key and found.value)
    if not had or expected in ([], [actual]):
        why = f"it expected {expected}, and there is {found}"
        yield Violation(WRITTEN, f"{told.process} was told that key {key} has version {actual}: {why}")
