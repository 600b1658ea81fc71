"""Lost, late and wrong responses: the writer reports Appended if it can verify the append, and Unknown otherwise."""

import pytest

from spark_cas.core.claim import Claim
from spark_cas.core.errors import StorageError, StoreUnsafeError
from spark_cas.core.guarantee import OFF, REQUESTED, REQUIRED
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Conflict, Fenced, Truncated, Unknown
from spark_cas.log.objects import ObjectLog
from spark_cas.log.objects.store_replies import NotNowError, PutReply
from tests.contract.blind import blindly
from tests.objects import flaky_store
from tests.objects.flaky_store import FlakyStore
from tests.objects.places import flaky_log, memory_spec, reopened
from tests.support.writing import JobWriter, append_foreign, claim_of, plan_of, table_of, values_in

NOT_NOW = NotNowError("reading: no reply. Wait.", "no reply")
SHORT = "400ms"


@pytest.mark.parametrize(
    "fault", [flaky_store.applied_but_unclear, flaky_store.applied_and_refused], ids=["no reply", "refused"]
)
@pytest.mark.parametrize("expected", ["end", "none"])
def test_an_own_write_is_recognised(fault, expected):
    log, store = flaky_log()
    writer = JobWriter(log, plan_of(log, "job", expected))
    store.on_create.append(("partition=", fault))
    assert writer.append(table_of("a")) == Appended(
        OffsetRange(0, 1), 1, writer.chunk(table_of("a")).time_ms, 0, has_offset=True, resolved=True
    )
    assert writer.must_append("b").resolved is False
    assert values_in(reopened(log), 0) == ["a", "b"]


@pytest.mark.parametrize("fault", [flaky_store.lost, flaky_store.refused_for_nothing], ids=["lost", "409"])
def test_put_that_did_not_arrive_is_retried(fault):
    log, store = flaky_log()
    writer = JobWriter(log, plan_of(log, "job"))
    store.on_create += [("partition=", fault)] * 2
    appended = writer.must_append("a")
    assert (appended.range, appended.attempts) == (OffsetRange(0, 1), 3)
    assert store.on_create == []
    assert values_in(log, 0) == ["a"]


@pytest.mark.parametrize("applied", [True, False])
def test_no_reply_until_the_deadline_is_unknown_and_a_new_claim_decides(applied):
    log, store = flaky_log(patience=SHORT)
    plan = plan_of(log, "job")
    writer = JobWriter(log, plan)
    store.on_create = [("partition=", flaky_store.lost)] * 100
    if applied:
        store.on_create.insert(0, ("partition=", flaky_store.applied_but_unclear))

    def no_reading(path):
        raise NOT_NOW

    append = writer.chunk(table_of("a"))
    store.before["get_end"] = lambda path: no_reading(path) if store.asked["create"] > created else None
    created = store.asked["create"]
    asked = store.asked["get_end"]
    assert isinstance(log.append(writer.claim, append), Unknown)
    assert store.asked["get_end"] > asked + 2
    again = claim_of(reopened(log), 0, plan)
    assert (again.progress.rows if again.progress else 0) == applied
    assert values_in(reopened(log), 0) == ["a"] * applied


def test_a_refusal_after_an_unclear_reply_is_not_definite():
    log, store = flaky_log(patience=SHORT)
    writer = JobWriter(log, plan_of(log, "job"))

    def forbidden(*_):
        raise StorageError("not permitted")

    store.on_create = [("partition=", flaky_store.lost), *[("partition=", forbidden)] * 100]
    assert isinstance(writer.append(table_of("a")), Unknown)
    store.on_create = [("partition=", forbidden)]
    with pytest.raises(StorageError, match="not permitted"):
        writer.append(table_of("a"))
    store.on_create = []
    assert writer.must_append("a").resolved is False


@pytest.mark.parametrize("heard", ["never", "the first put"])
def test_expired_credentials_are_reported_immediately(heard):
    log, store = flaky_log()
    writer = JobWriter(log, plan_of(log, "job"))
    chunk = writer.chunk(table_of("a"))
    store.on_create = [("partition=", flaky_store.lost)] if heard == "the first put" else []

    def ended(*_):
        store.before["get_end"] = refuse
        raise StorageError("writing: the credentials have ended.")

    def refuse(_):
        raise StorageError("reading: the credentials have ended.")

    store.on_create += [("partition=", ended)] * 100
    began = store.asked["create"]
    outcome = log.append(writer.claim, chunk)
    assert isinstance(outcome, Unknown)
    assert outcome.cause.startswith("writing: the credentials have ended.")
    assert "holds" not in outcome.cause
    assert store.asked["create"] - began == (1 if heard == "never" else 2)


def test_unreadable_chunk_is_not_reported_as_absent():
    log, store = flaky_log(patience=SHORT)
    writer = JobWriter(log, plan_of(log, "job"))
    chunk = writer.chunk(table_of("a"))

    def unread(*_):
        store.before["get_end"] = silent
        return PutReply.UNCLEAR

    def silent(_):
        raise NOT_NOW

    store.on_create = [("partition=", unread)] * 100
    outcome = log.append(writer.claim, chunk)
    assert isinstance(outcome, Unknown)
    assert "did not report whether it stored the chunk. It could not be read back" in outcome.cause
    assert "holds" not in outcome.cause


def test_a_failure_after_the_put_is_no_refusal():
    log, store = flaky_log()
    plan = plan_of(log, "job")
    writer = JobWriter(log, plan)
    failures = [NOT_NOW] * 2

    def fail_after_the_put(_):
        if values_in(reopened(log), 0) and failures:
            raise failures.pop()

    store.before["below"] = fail_after_the_put
    store.before["overwrite"] = fail_after_the_put
    assert writer.must_append("a", complete=True).range == OffsetRange(0, 1)
    assert failures == []


def test_when_nothing_is_heard_after_the_put_the_answer_is_unknown():
    log, store = flaky_log(patience=SHORT)
    plan = plan_of(log, "job")
    writer = JobWriter(log, plan)

    def silent_after_the_put(_):
        if values_in(reopened(log), 0):
            raise NOT_NOW

    store.before["below"] = silent_after_the_put
    assert isinstance(writer.append(table_of("a")), Unknown)
    claim = reopened(log).claim(0, plan)
    assert isinstance(claim, Claim)
    assert claim.progress is not None
    assert claim.progress.rows == 1


def test_hints_that_cannot_be_written_do_no_harm():
    log, store = flaky_log()

    def full(_):
        raise StorageError("no hints today")

    store.before["overwrite"] = full
    writer = JobWriter(log, plan_of(log, "job"))
    writer.must_append("a")
    writer.must_append("b", complete=True)
    assert store.asked["overwrite"] > 0
    fresh = reopened(log)
    assert fresh.bounds(0) == Bounds(0, 2)
    assert fresh.progress(0, "job") == writer.claim.progress


def overwriting(create, path, data):
    """The response of a store without conditional puts."""
    return PutReply.CREATED


def test_a_store_that_overwrites_is_refused_before_anything_is_appended():
    spec = memory_spec()
    store = FlakyStore(ObjectLog(spec)._store)
    store.on_create = [("probe", overwriting)] * 2
    with pytest.raises(StoreUnsafeError, match=r"^\[STORE_UNSAFE\] .*put-if-absent"):
        ObjectLog(spec, store).create(1)
    assert not ObjectLog(spec)._store.below("_log/layout")

    log = ObjectLog(spec)
    log.create(1)
    plan = plan_of(log, "job")
    store.on_create = [("probe", overwriting)] * 2
    with pytest.raises(StoreUnsafeError):
        ObjectLog(spec, store).claim(0, plan)
    for asked in (REQUIRED, REQUESTED, OFF):
        store.on_create = [("probe", overwriting)] * 2
        with pytest.raises(StoreUnsafeError):
            ObjectLog(spec, store).preflight(idempotence=asked)
    store.on_create = [("probe", overwriting)] * 2
    with pytest.raises(StoreUnsafeError):
        blindly(ObjectLog(spec, store), "a")
    assert not log._store.below("partition=00000")


def test_a_store_without_an_answer_proves_nothing():
    spec = memory_spec().with_options({"retry_timeout": SHORT})
    store = FlakyStore(ObjectLog(spec)._store)
    silent = [("probe", flaky_store.applied_but_unclear), ("probe", flaky_store.lost)]
    store.on_create = [*silent, ("probe", overwriting), ("probe", overwriting)]
    with pytest.raises(StoreUnsafeError):
        ObjectLog(spec, store).create(1)
    store.on_create = [("probe", flaky_store.lost)] * 100
    with pytest.raises(StorageError):
        ObjectLog(spec, store).create(1)


@pytest.mark.parametrize("expected", range(1, 5))
def test_an_offset_inside_a_chunk_names_no_object_and_is_a_conflict(expected):
    log, store = flaky_log()
    append_foreign(log, 0, *"abcde")
    writer = JobWriter(log, plan_of(log, "job", f'{{"0": {expected}}}'))
    assert writer.append(table_of("x")) == Conflict(expected, 5, 0)
    assert len(store.inner.below("partition=00000")) == 1


def test_offset_past_the_end_is_truncated_after_a_second_read():
    log, store = flaky_log()
    append_foreign(log, 0, "a")
    writer = JobWriter(log, plan_of(log, "job", '{"0": 4}'))
    before = store.asked["get_end"]
    assert writer.append(table_of("x")) == Truncated(4, 1)
    assert store.asked["get_end"] >= before + 3
    assert len(store.inner.below("partition=00000")) == 1


def test_an_offset_that_only_this_process_thinks_past_the_end():
    """The client's cached end is older than the claim, so the second read returns the current end."""
    log, _ = flaky_log()
    append_foreign(log, 0, "a")
    other = reopened(log)
    append_foreign(other, 0, "b")
    writer = JobWriter(log, plan_of(other, "job"))
    assert writer.must_append("c").range == OffsetRange(2, 3)


@pytest.mark.parametrize("job", ["job", "another"])
def test_the_winner_of_a_race_decides_the_answer(job):
    log, store = flaky_log()
    plan = plan_of(log, "job")
    writer = JobWriter(log, plan, task="run/0-late")
    winner = JobWriter(reopened(log), plan if job == "job" else plan_of(log, job), task="run/0-first")

    def overtaken(create, path, data):
        winner.must_append("w")
        return create(path, data)

    store.on_create = [("partition=", overtaken)]
    outcome = writer.append(table_of("x"))
    assert outcome == (Fenced("run/0-first") if job == "job" else Conflict(0, 1, 0))
    assert values_in(reopened(log), 0) == ["w"]


def test_writer_that_never_wins_reports_that_nothing_is_in_the_log():
    log, store = flaky_log(patience=SHORT)
    writer = JobWriter(log, plan_of(log, "job", "none"))

    def overtaken(create, path, data):
        append_foreign(reopened(log), 0, "w")
        return create(path, data)

    store.on_create = [("partition=", overtaken)] * 1000
    with pytest.raises(StorageError, match=r"others appended .* Nothing of this chunk is in the log"):
        writer.append(table_of("x"))
    assert set(values_in(reopened(log), 0)) == {"w"}


def test_unchecked_writer_appends_after_the_winner():
    log, store = flaky_log()
    writer = JobWriter(log, plan_of(log, "job", "none"))

    def overtaken(create, path, data):
        append_foreign(reopened(log), 0, "w", "w")
        return create(path, data)

    store.on_create = [("partition=", overtaken)] * 3
    assert writer.must_append("x").range == OffsetRange(6, 7)
    assert values_in(reopened(log), 0) == ["w"] * 6 + ["x"]
