"""Rows that brokers reject because of topic settings: every write names them before it sends anything."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import SchemaError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import AT_LEAST_ONCE, IDEMPOTENT
from spark_cas.core.records import RECORDS
from spark_cas.log import clock
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.append_rows import append_rows, load_blind
from spark_cas.log.load.atomic_load import in_one_transaction
from spark_cas.log.load.planning import pin_plan
from tests.kafka.clients import configure, create_topic
from tests.kafka.test_acls import least

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

DAY = 86_400_000
LIMITS = ChunkLimits(max_records=100_000, max_bytes=64_000_000, max_seconds=1_000)
BAD_ROW = 7


def rows_with(row: dict[str, object]) -> pa.RecordBatch:
    """Return ten rows that include this one."""
    good = {"key": b"k", "value": b"v"}
    return pa.RecordBatch.from_pylist([row if at == BAD_ROW else good for at in range(10)], schema=RECORDS)


def load(log: KafkaLog, rows: pa.RecordBatch) -> None:
    plan = pin_plan(log, "job", ExpectedOffsets.parse("end"))
    append_rows(log, plan, [(0, rows)], task="t", limits=LIMITS, fenced_retry_wait_seconds=1.0)


def load_atomically(log: KafkaLog, rows: pa.RecordBatch) -> None:
    plan = pin_plan(log, "job", ExpectedOffsets.parse("end"), whole=True)

    def append():
        return append_rows(log, plan, [(0, rows)], task="t", limits=LIMITS, fenced_retry_wait_seconds=1.0)

    in_one_transaction(log, plan, append, fenced_retry_wait_seconds=1.0)


def blindly(guarantee: str) -> Callable[[KafkaLog, pa.RecordBatch], None]:
    def run(log: KafkaLog, rows: pa.RecordBatch) -> None:
        load_blind(log, log.layout(), [(0, rows)], task="t", limits=LIMITS, guarantee=guarantee)

    return run


WRITES = {
    "load": load,
    "atomic load": load_atomically,
    "idempotent": blindly(IDEMPOTENT),
    "at least once": blindly(AT_LEAST_ONCE),
}
CASES: dict[str, tuple[dict[str, str], Callable[[], dict[str, object]]]] = {
    "before": ({"message_timestamp_before_max_ms": str(DAY)}, lambda: {"key": b"k", "timestamp": at(-2 * DAY)}),
    "after": ({"message_timestamp_after_max_ms": str(DAY)}, lambda: {"key": b"k", "timestamp": at(2 * DAY)}),
    "no key": ({"cleanup_policy": "compact"}, lambda: {"value": b"v"}),
}


def at(milliseconds: int) -> int:
    return clock.now_ms() + milliseconds


def spec_on(broker, **config: str) -> KafkaSpec:
    topic = create_topic(broker.bootstrap, 1, **config)
    return KafkaSpec(broker.bootstrap, topic, topic)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("case", CASES)
def test_a_row_that_the_settings_exclude_is_named_and_nothing_is_sent(broker, case, write):
    config, row = CASES[case]
    with KafkaLog(spec_on(broker, **config)) as log:
        with pytest.raises(SchemaError, match=f"row {BAD_ROW} of partition 0 "):
            write(log, rows_with(row()))
        assert log.bounds(0).end_offset == 0


@pytest.mark.parametrize(
    ("config", "row"),
    [
        (
            {"message_timestamp_type": "LogAppendTime", "message_timestamp_before_max_ms": str(DAY)},
            {"key": b"k", "timestamp": 1},
        ),
        ({"message_timestamp_before_max_ms": str(DAY)}, {"key": b"k", "timestamp": None}),
        ({"cleanup_policy": "compact"}, {"key": b"k", "value": None}),
        ({}, {"key": None, "value": b"v", "timestamp": 1}),
    ],
)
def test_rows_that_brokers_take_are_appended(broker, config, row):
    with KafkaLog(spec_on(broker, **config)) as log:
        load(log, rows_with(row))
        assert log.bounds(0).end_offset >= 10


def test_settings_that_were_changed_count_at_once(broker):
    spec = spec_on(broker, message_timestamp_before_max_ms=str(DAY))
    row = {"key": b"k", "timestamp": at(-2 * DAY)}
    with KafkaLog(spec) as log:
        with pytest.raises(SchemaError):
            load(log, rows_with(row))
        configure(broker.bootstrap, spec.topic, message_timestamp_before_max_ms=str(4 * DAY))
        load(log, rows_with(row))
        assert log.bounds(0).end_offset >= 10


def test_rows_that_are_in_the_log_are_not_checked_again(broker):
    """A job that is rerun much later reads its old rows again, and does not append them."""
    spec = spec_on(broker)
    rows = rows_with({"key": b"k", "timestamp": at(-2 * DAY)})
    with KafkaLog(spec) as log:
        load(log, rows)
    configure(broker.bootstrap, spec.topic, message_timestamp_before_max_ms=str(DAY))
    with KafkaLog(spec) as log:
        load(log, rows)


def test_without_the_right_to_read_the_settings_the_broker_decides(secured):
    topic = create_topic(secured.open)
    secured.allow(least(topic, topic).values())
    with KafkaLog(secured.spec(topic)) as log:
        load(log, rows_with({"key": b"k", "timestamp": at(-2 * DAY)}))
