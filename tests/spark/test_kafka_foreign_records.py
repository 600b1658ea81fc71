"""A bootstrap, a verification and a write by key over unusual records, which other producers appended."""

import pytest

from spark_cas import bootstrap, route, verify_log
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.spark.schema import RECORDS
from tests.kafka.clients import create_topic
from tests.kafka.raw_records import RawRecord, append_raw
from tests.kafka.test_foreign_records import NOT_TEXT, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_state_verification_and_writes_by_key_pass_unusual_records(broker, spark):
    topic = create_topic(broker.bootstrap, message_timestamp_after_max_ms=str(2**63 - 1))
    spec = KafkaSpec(broker.bootstrap, topic, prefix=topic)
    unusual = [NOT_TEXT, RawRecord(None), RawRecord(b"1", key=b"a"), RawRecord(None, key=b"a"), RawRecord(key=b"")]
    append_raw(spec.bootstrap_servers, spec.topic, *unusual)
    append_raw(spec.bootstrap_servers, spec.topic, RawRecord(b"late", key=b"late", timestamp_ms=2**63 - 1))
    at = bootstrap(spark, spec.url)
    state = at.state.select("key", "value", "timestamp").collect()
    assert {(bytes(row.key), bytes(row.value)) for row in state} == {(b"", b"value"), (b"late", b"late")}
    assert [row.timestamp for row in state if row.key == b"late"] == [None]
    assert verify_log(at.records.select("key", "value"), spec.url).holds
    writing = {"path": spec.url, "job": "job", "compare": "key", "expectedOffsets": at.expected_offsets}
    rows = route(spark.createDataFrame([(b"a", b"2"), (b"new", b"3")], "key binary, value binary"), writing)
    rows.write.format("conditional-log").mode("append").options(**writing).save()
    assert len(rows_of(spec, RECORDS)) == len(unusual) + 3
