"""Check that the log contains the writes of the store's clients as reported to them, even if no client read them.

The number of the property is 19:
- An acknowledged write is in the log once, at the reported version.
- A write with an unknown result is in the log once or not at all. If the log has one value of a transaction, it has
  all of them.
- A write that definitely failed is not in the log. Besides writes, the log contains only leader records.
- If a client was rejected because of another version, the key had the reported version at some time.

Values are unique, so a value identifies its write, and one pass over the log is enough. Deletions of a key are
identical: their number in the log is at least the acknowledged ones, and at most those plus the ones with an unknown
result.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from key_value_store.errors import VersionMismatchError
from key_value_store.records import LEADER_KEY
from spark_cas.core.partitioner import partition_of_key
from tests.chaos.kv.keys import SHARDS
from tests.history.operations import FAIL, OK, Operation
from tests.history.records import Found, Record
from tests.history.violation import Violation

WRITTEN = 19
_WRITES = ("put", "cas", "delete", "remove")

Places = Mapping[tuple[int, int], Record]
"""The record at an offset of a shard."""


def written(history: Sequence[Operation], log: Mapping[int, Sequence[Found]]) -> Iterator[Violation]:
    """Yield the differences between the log and the results that clients received.

    The time is linear in the records of the log and the operations of the history.
    """
    places = {(shard, found.offset): found.record for shard, records in log.items() for found in records}
    there = Counter(
        found.record for records in log.values() for found in records if found.record.key != LEADER_KEY.decode()
    )
    least, most = Counter[Record](), Counter[Record]()
    for each in history:
        if each.name not in ("write", "transact"):
            continue
        if each.result.get("kind") == VersionMismatchError.kind:
            yield from _mismatch(each, places)
        if each.outcome == FAIL:
            continue
        records = [_record(step) for step in each.arguments["steps"] if step["op"] in _WRITES]
        most.update(records)
        if each.outcome == OK:
            least.update(records)
            yield from _versions(each, records, places)
        elif any(there[record] for record in records if record.value):
            # The log has a part of the transaction, so it must have all of it.
            least.update(records)
    for record in most | there:
        if not least[record] <= there[record] <= most[record]:
            writes = f"{least[record]} acknowledged writes and {most[record] - least[record]} of unknown outcome"
            yield Violation(WRITTEN, f"{record} is in the log {there[record]} times, after {writes}")


def _record(step: Mapping[str, Any]) -> Record:
    return Record(step["key"], step.get("value", ""))


def _at(places: Places, key: str, version: int) -> Record | None:
    return places.get((partition_of_key(key.encode(), SHARDS), version))


def _versions(told: Operation, records: Sequence[Record], places: Places) -> Iterator[Violation]:
    for record in records:
        version = told.result["versions"][record.key]
        found = _at(places, record.key, version)
        if found != record:
            yield Violation(WRITTEN, f"{told.process} received version {version} of {record}; the log has {found}")


def _mismatch(told: Operation, places: Places) -> Iterator[Violation]:
    key, actual = told.result["key"], told.result["actual"]
    expected = [step["expected"] for step in told.arguments["steps"] if step["key"] == key and "expected" in step]
    found = None if actual is None else _at(places, key, actual)
    had = actual is None or (found is not None and found.key == key and found.value)
    if not had or expected in ([], [actual]):
        why = f"it expected {expected}, and the log has {found}"
        yield Violation(WRITTEN, f"{told.process} received a mismatch with version {actual} of key {key}: {why}")
