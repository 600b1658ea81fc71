"""Hints save requests but are never trusted: every result is correct, even with wrong hints."""

import json

import pytest

from spark_cas.core.chunks import Chunk
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended
from spark_cas.log.objects import ObjectLog, documents, ledger, paths
from spark_cas.log.objects.ledger import _HINT_EVERY_CHUNKS
from tests.objects.flaky_store import FlakyStore
from tests.objects.places import flaky_log, reopened
from tests.support.writing import JobWriter, append_foreign, claim_of, plan_of, table_of, values_in

HINTS = [paths.end_hint(0), paths.job_hint("job", 0)]


def naming(base_offset: object) -> bytes:
    return documents.encode({"base_offset": base_offset})


WRONG = {
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "no document": b"[]",
    "a number": b"7",
    "nested": b"[" * 100_000,
    "other fields": documents.encode({"start": 0}),
    "negative": naming(-1),
    "a text": naming("0"),
    "nothing": naming(None),
    "a fraction": naming(0.5),
    "huge": naming(10**40),
    "inside a chunk": naming(1),
    "another job's chunk": naming(3),
    "the first chunk": naming(0),
    "past the end": naming(1000),
    "a trimmed chunk": naming(0),
    "another layout of the document": json.dumps({"value": {"base_offset": [0]}}).encode(),
}


@pytest.mark.parametrize("which", HINTS, ids=["end", "job"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_hints_change_no_answer(which, wrong):
    log, store = flaky_log()
    plan = plan_of(log, "job", "none")
    log.record_plan(plan)
    writer = JobWriter(log, plan)
    writer.must_append("a", "b", "c")
    append_foreign(log, 0, "x")
    writer.must_append("d")
    if wrong == "a trimmed chunk":
        log.trim(0, 3)
    kept = log.bounds(0)
    store.inner.overwrite(which, WRONG[wrong])
    fresh = reopened(log)
    assert fresh.bounds(0) == kept == Bounds(kept.start_offset, 5)
    assert values_in(fresh, 0) == ["a", "b", "c", "x", "d"][kept.start_offset :]
    assert reopened(log).progress(0, "job") == writer.claim.progress
    assert claim_of(reopened(log), 0, plan).progress == writer.claim.progress
    assert JobWriter(reopened(log), plan).must_append("e").range.base_offset == 5


def test_log_is_read_without_hints():
    log, store = flaky_log()
    writer = JobWriter(log, plan_of(log, "job"))
    for value in "abcde":
        writer.must_append(value)
    store.inner.delete(HINTS)
    fresh = reopened(log)
    assert fresh.bounds(0) == Bounds(0, 5)
    assert fresh.progress(0, "job") == writer.claim.progress


def asked_by(log: ObjectLog, question) -> tuple[object, int]:
    """Return the result in a process that has just opened the log, and the number of requests to the store."""
    store = FlakyStore(reopened(log)._store)
    answer = question(ObjectLog(log.spec, store))
    return answer, store.asked.total()


def test_requests_for_the_end_do_not_depend_on_the_number_of_chunks():
    log, store = flaky_log()
    plan = plan_of(log, "job")
    log.record_plan(plan)
    claim = claim_of(log, 0, plan)
    row = table_of("a")
    per_append, opened = {}, {}
    for number in range(1, 2101):
        before = store.asked.total()
        chunk = Chunk(row, number, f"{number:032x}", complete=False, task="run/0", time_ms=number)
        outcome = log.append(claim, chunk)
        assert isinstance(outcome, Appended)
        claim = claim.after(chunk, outcome.range)
        per_append[number] = store.asked.total() - before
        if number in (20, 2100):
            answer, opened[number] = asked_by(log, lambda fresh: fresh.bounds(0))
            assert answer == Bounds(0, number)
            progress, claiming = asked_by(log, lambda fresh: claim_of(fresh, 0, plan).progress)
            assert progress == claim.progress
            assert claiming <= 4 * _HINT_EVERY_CHUNKS
    assert opened[2100] == opened[20]
    hinting = range(1, 2101, _HINT_EVERY_CHUNKS)
    assert len({count for number, count in per_append.items() if number not in hinting}) == 1
    assert max(per_append.values()) <= 8
    asked = store.asked.copy()
    assert log.bounds(0) == Bounds(0, 2100)
    assert store.asked - asked == {"get_end": 1, "below": 1}


def test_follower_lists_no_chunks():
    log, store = flaky_log()
    for value in "abcdef":
        append_foreign(log, 0, value, value)
    answers, asked = [], []
    for start in (0, 4, 10, 5):
        before = store.asked.copy()
        answers.append(
            [record["value"] for _, batch in log.read(0, OffsetRange(start, 12)) for record in batch.to_pylist()]
        )
        asked.append((store.asked - before)["below"])
    assert answers == [[value.encode() for value in "aabbccddeeff"[start:]] for start in (0, 4, 10, 5)]
    # Each read requests the start of the log once, and again for each chunk, because it may be trimmed meanwhile.
    assert asked == [1 + 6, 1 + 4, 1 + 1, 1 + 4 + 1]


def test_jobs_of_one_chunk_write_few_hints_and_are_read_without():
    log, store = flaky_log()
    for _ in range(20 * _HINT_EVERY_CHUNKS):
        append_foreign(log, 0, "x")
    plan = plan_of(log, "job")
    log.record_plan(plan)
    writer = JobWriter(log, plan)
    writer.must_append("a", complete=True)
    for _ in range(20 * _HINT_EVERY_CHUNKS):
        append_foreign(log, 0, "x")
    hint = store.inner.get(paths.end_hint(0))
    assert hint is not None
    assert json.loads(bytes(hint))["value"]["base_offset"] > 10 * _HINT_EVERY_CHUNKS
    progress, asked = asked_by(log, lambda fresh: claim_of(fresh, 0, plan).progress)
    assert progress == writer.claim.progress
    # This is the first chunk after the job's plan, and it completes the job. The search does not walk the later
    # chunks.
    assert asked < 20 * _HINT_EVERY_CHUNKS


def test_ledger_keeps_few_jobs_and_reads_the_others_again(monkeypatch):
    monkeypatch.setattr(ledger, "_MOST_JOBS", 2)
    log, _ = flaky_log()
    writers = [JobWriter(log, plan_of(log, f"job-{number}", "none")) for number in range(4)]
    for number, writer in enumerate(writers):
        writer.must_append(f"{number}")
    assert [len(each._known) for each in log._ledgers.values()] == [2]
    assert [log.progress(0, f"job-{number}") for number in range(4)] == [each.claim.progress for each in writers]
    for writer in writers:
        writer.must_append("x")
    assert values_in(log, 0) == [*"0123xxxx"]
    assert [len(each._known) for each in log._ledgers.values()] == [2]
