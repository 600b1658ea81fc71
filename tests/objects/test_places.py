"""Addresses without a log, and logs that this version cannot read."""

import shutil

import pytest

from spark_cas.core.errors import FormatError, LogNotFoundError, LogNotSharedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.offsets import Bounds
from spark_cas.log.load.planning import pin_plan
from spark_cas.log.objects import ObjectLog, documents, paths
from spark_cas.log.objects.store_replies import PutReply
from tests.objects.flaky_store import FlakyStore
from tests.objects.places import flaky_log, local_log, memory_spec, reopened
from tests.support.loads import load
from tests.support.writing import JobWriter, append_foreign, claim_of, plan_of, table_of, values_in


def newer_document(value):
    return documents.encode(value).replace(b'"format":1', b'"format":2')


def test_a_directory_with_something_else_in_it(tmp_path):
    (tmp_path / "part-00000.parquet").write_bytes(b"PAR1")
    for ask in (lambda log: log.layout(), lambda log: log.create(2), lambda log: log.bounds(0)):
        with pytest.raises(FormatError, match=rf"^\[FORMAT\] {tmp_path} holds something, but no log"):
            ask(local_log(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["part-00000.parquet"]


def test_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FormatError, match=rf"^\[FORMAT\] {tmp_path / 'file'} is a file"):
        local_log(tmp_path / "file")


def test_an_empty_directory_is_a_place_for_a_new_log(tmp_path):
    with pytest.raises(LogNotFoundError, match=rf"^\[LOG_NOT_FOUND\] there is no log at {tmp_path}\."):
        local_log(tmp_path).layout()
    assert local_log(tmp_path).create(2).partitions == 2


def test_a_newer_layout_is_named():
    log, store = flaky_log()
    store.inner.overwrite(paths.layout(1), newer_document({"log_id": "x", "epoch": 1, "partitions": 4, "more": 1}))
    for ask in (log.layout, lambda: log.create(1), lambda: reopened(log).bounds(0)):
        with pytest.raises(FormatError, match=r"^\[FORMAT\] a layout of the log has format version 2.*newer"):
            ask()


def test_newer_plans_and_completions_are_named():
    log, store = flaky_log()
    store.inner.overwrite(paths.entry("plan", "job"), newer_document({}))
    store.inner.overwrite(paths.entry("completion", "job"), newer_document({}))
    for ask in (log.plan, log.completion):
        with pytest.raises(FormatError, match="of job 'job' has format version 2"):
            ask("job")


DAMAGED = [b"", b"{}", b"\xff", b"[1]", b"null", b"[" * 100_000, documents.encode({})]


@pytest.mark.parametrize("data", [*DAMAGED, documents.encode({"job": "j"}).replace(b'"j"', b'"k"')])
def test_damaged_documents_are_errors(data):
    log, store = flaky_log()
    plan = plan_of(log, "job")
    log.record_plan(plan)
    store.inner.overwrite(paths.entry("plan", "job"), data)
    with pytest.raises(FormatError):
        log.plan("job")
    store.inner.overwrite(paths.layout(0), data)
    with pytest.raises(FormatError):
        log.layout()


def test_incomplete_creation_does_not_block_others():
    spec = memory_spec()
    store = FlakyStore(ObjectLog(spec)._store)

    def die(path):
        if paths.LAYOUTS in path:
            raise KeyboardInterrupt

    store.before["create"] = die
    with pytest.raises(KeyboardInterrupt):
        ObjectLog(spec, store).create(1)
    with pytest.raises(LogNotFoundError):
        ObjectLog(spec).layout()
    assert ObjectLog(spec).create(3).partitions == 3


@pytest.mark.parametrize("at", [paths.PROBE, paths.LAYOUTS])
def test_two_creators_at_once_agree(at):
    spec = memory_spec()
    store = FlakyStore(ObjectLog(spec)._store)
    layouts = []

    def overtaken(create, path, data) -> PutReply:
        layouts.append(ObjectLog(spec).create(3))
        return create(path, data)

    store.on_create = [(at, overtaken)]
    layouts.append(ObjectLog(spec, store).create(1))
    assert layouts == [ObjectLog(spec).layout()] * 2


def remove_and_create_again(log: ObjectLog, partitions: int = 1) -> None:
    store = reopened(log)._store
    store.delete(store.below("_log") + store.below("partition=00000"))
    reopened(log).create(partitions)


def test_a_copy_of_the_directory_is_not_the_log_that_the_driver_planned_with(tmp_path):
    driver = local_log(tmp_path / "log")
    driver.create(1)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    worker = local_log(tmp_path / "copy")
    plan = pin_plan(driver, "job", ExpectedOffsets.parse("end"))
    for _ in range(2):
        with pytest.raises(LogNotSharedError, match=r"'job'.*shared directory"):
            load(worker, plan, {0: ["a"]})
        pin_plan(worker, "job", ExpectedOffsets.parse("end"))
    assert values_in(worker, 0) == []
    assert load(local_log(tmp_path / "log"), plan, {0: ["a"]})[0].progress.rows == 1


def test_another_log_at_the_same_address_is_detected():
    log, _ = flaky_log()
    plan = plan_of(log, "job")
    writer = JobWriter(log, plan)
    writer.must_append("a", "b", "c")
    remove_and_create_again(log)
    with pytest.raises(LogNotSharedError):
        log.claim(0, plan)
    with pytest.raises(LogNotSharedError):
        writer.append(table_of("d"))
    assert log.bounds(0) == Bounds(0, 0)
    assert log.progress(0, "job") is None
    assert claim_of(log, 0, plan_of(log, "job")).expected_offset == 0
    append_foreign(log, 0, "x")
    assert values_in(reopened(log), 0) == ["x"]
