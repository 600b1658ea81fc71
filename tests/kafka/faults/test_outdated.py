"""A broker that was deposed, and has not heard of it, says where partitions ended then."""

import pytest

from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.load.planning import pin_plan
from spark_cas.testing.writing import JobWriter, append_foreign, table_of
from tests.kafka.clients import committed_values
from tests.kafka.faulted import spec_of
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def test_an_end_of_then_refuses_nobody(proxied, proxied_topic):
    with (
        KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log,
        KafkaLog(spec_of(proxied.direct, proxied_topic)) as direct,
    ):
        outdated = proxied.proxy.add(Fault.OLD_RESPONSE, Api.LIST_OFFSETS, times=None)
        assert log.bounds(0).end_offset == 0
        end = append_foreign(direct, 0, "x").range.end_offset
        writer = JobWriter(log, pin_plan(direct, "job", ExpectedOffsets.parse(f'{{"0": {end}}}')))
        assert isinstance(writer.append(table_of(["y"])), Appended)
        outdated.told_old.wait(0)
    assert committed_values(proxied.direct, proxied_topic) == ["x", "y"]


def test_an_end_of_then_keeps_nobody_from_reading(proxied, proxied_topic):
    with (
        KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log,
        KafkaLog(spec_of(proxied.direct, proxied_topic)) as direct,
    ):
        outdated = proxied.proxy.add(Fault.OLD_RESPONSE, Api.LIST_OFFSETS, times=None)
        assert [batch for _, batch in log.read(0, OffsetRange(0, 0))] == []
        seen = append_foreign(direct, 0, "x").range
        assert [batch.column("value").to_pylist() for _, batch in log.read(0, seen)] == [[b"x"]]
        outdated.told_old.wait(0)
