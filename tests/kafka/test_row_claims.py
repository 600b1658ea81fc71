"""Rows with expected offsets, among markers, aborted records and records of other producers."""

import pytest

from spark_cas.core.outcome import Appended, RowConflict
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.sending import Sending
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import append as append_as_others_do
from tests.support.writing import JobWriter, append_foreign, plan_of, records_in, table_of, values_in

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def log(broker, topic):
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=20_000)) as opened:
        yield opened


def test_rows_are_numbered_over_markers_and_aborted_records(broker, log, topic):
    append_as_others_do(broker.bootstrap, topic, "x", "y")
    append_as_others_do(broker.bootstrap, topic, "aborted", commit=False)
    assert log.bounds(0).end_offset == 5
    writer = JobWriter(log, plan_of(log, "job", "none"))
    cases: list[tuple[list[int | None], RowConflict]] = [
        ([1, 2], RowConflict(0, 1, 5, truncated=False)),
        ([2, 7], RowConflict(1, 7, 6, truncated=False)),
        ([None, 2], RowConflict(1, 2, 6, truncated=False)),
        ([6, 7], RowConflict(0, 6, 5, truncated=True)),
    ]
    for claims, refused in cases:
        assert writer.append(table_of("ab"), claims=claims) == refused
    assert values_in(log, 0) == ["x", "y"]
    assert isinstance(writer.append(table_of("ab"), claims=[2, 6]), Appended)
    assert [offset for offset, _ in records_in(log, 0)] == [0, 1, 5, 6]
    assert isinstance(writer.append(table_of("c"), claims=[4]), Appended), "2 + 2 rows"
    append_as_others_do(broker.bootstrap, topic, "z")
    assert isinstance(writer.append(table_of("d"), claims=[5]), RowConflict)


def test_record_between_check_and_chunk_is_a_conflict(broker, log, topic, monkeypatch):
    append_foreign(log, 0, "x")
    end = log.bounds(0).end_offset
    writer = JobWriter(log, plan_of(log, "job", "none"))
    init = Sending.__init__

    def late(sending, *args):
        monkeypatch.setattr(Sending, "__init__", init)
        append_as_others_do(broker.bootstrap, topic, "foreign")
        init(sending, *args)

    monkeypatch.setattr(Sending, "__init__", late)
    refused = writer.append(table_of("ab"), claims=[None, end + 1])
    now = log.bounds(0).end_offset
    assert refused == RowConflict(1, end + 1, now + 1, truncated=False)
    assert values_in(log, 0) == ["x", "foreign"]
    monkeypatch.setattr(Sending, "__init__", late)
    assert isinstance(writer.append(table_of("ab")), Appended), "nothing was expected"
