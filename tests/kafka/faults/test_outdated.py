"""A stale broker, which returns old end offsets and partition counts, and does not know new topics."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from spark_cas.core.claim import Claim
from spark_cas.core.errors import LogNotFoundError
from spark_cas.core.expansion import Intent
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, Fenced
from spark_cas.log.expanding import expand_log, layout_with
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client import admin as asking
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.load.planning import pin_plan
from spark_cas.options.read_range import ReadRange, Splitting
from spark_cas.options.request import ReadRequest, Selection
from spark_cas.spark.reading.read import ViewReader
from spark_cas.spark.reading.selected_logs import SelectedLogs
from spark_cas.spark.schema import OFFSETS
from tests.kafka.clients import SECONDS, committed_values
from tests.kafka.faulted import spec_of
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault, naming, of_client
from tests.long import full
from tests.support.writing import JobWriter, append_foreign, table_of
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

_LATE_SECONDS = 2.0
"""A broker that stalls for half of this time may lose its leadership."""


def test_old_end_offset_rejects_no_writer(proxied, proxied_topic):
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


def test_old_response_depends_on_the_client(proxied, proxied_topic):
    def outdated(deposed_for):
        return proxied.proxy.add(Fault.OLD_RESPONSE, Api.LIST_OFFSETS, times=None, deposed_for=deposed_for)

    with (
        KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log,
        KafkaLog(spec_of(proxied.direct, proxied_topic)) as direct,
    ):
        ended = outdated(lambda _: True)
        assert log.bounds(0).end_offset == 0
        first = append_foreign(direct, 0, "x").range.end_offset
        assert log.bounds(0).end_offset == 0
        ended.release()
        deposed = False
        outdated(lambda _: deposed)
        assert log.bounds(0).end_offset == first
        second = append_foreign(direct, 0, "y").range.end_offset
        assert log.bounds(0).end_offset == second
        deposed = True
        assert log.bounds(0).end_offset == first


def test_old_end_offset_blocks_no_reader(proxied, proxied_topic):
    with (
        KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log,
        KafkaLog(spec_of(proxied.direct, proxied_topic)) as direct,
    ):
        outdated = proxied.proxy.add(Fault.OLD_RESPONSE, Api.LIST_OFFSETS, times=None)
        assert [batch for _, batch in log.read(0, OffsetRange(0, 0))] == []
        seen = append_foreign(direct, 0, "x").range
        assert [batch.column("value").to_pylist() for _, batch in log.read(0, seen)] == [[b"x"]]
        outdated.told_old.wait(0)


@pytest.mark.parametrize("waiting", [False, True])
def test_end_before_a_known_offset_is_confirmed(proxied, proxied_topic, waiting):
    with (
        KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log,
        KafkaLog(spec_of(proxied.direct, proxied_topic)) as direct,
    ):
        outdated = proxied.proxy.add(Fault.OLD_RESPONSE, Api.LIST_OFFSETS, times=None)
        assert log.bounds(0).end_offset == 0
        end = append_foreign(direct, 0, "x").range.end_offset
        assert log.bounds_of([0], waiting=waiting, at_least=[end])[0].end_offset == end
        outdated.told_old.wait(0)


@pytest.fixture
def lagging(proxied, proxied_topic):
    """A topic with two partitions, of which the broker reports only one for a moment, on each connection."""
    rule = proxied.proxy.add(Fault.OLD_RESPONSE, Api.METADATA, times=None)
    with (
        KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log,
        KafkaLog(spec_of(proxied.direct, proxied_topic)) as direct,
    ):
        assert log.layout().partitions == 1
        expand_log(direct, 2)
    return rule


def test_unknown_partition_is_requested_again(proxied, proxied_topic, lagging):
    with KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log:
        assert log.bounds(1).end_offset == 0
    lagging.told_old.wait(0)


@pytest.mark.full
def test_known_partition_does_not_disappear(proxied, proxied_topic, lagging):
    with KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log:
        log.bounds(1)
        proxied.proxy.add(Fault.RESET_BEFORE_REQUEST, Api.METADATA)
        assert log.layout().partitions == 2
    lagging.told_old.wait(0)


@pytest.mark.full
def test_no_expansion_that_was_recorded_is_of_partitions_that_are_not_there(proxied, proxied_topic, lagging):
    with KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log:
        assert log.layouts().layout.partitions == 2
    lagging.told_old.wait(0)


@pytest.mark.full
def test_a_bound_has_every_partition_that_was_added(proxied, proxied_topic, lagging):
    selection = Selection(spec_of(proxied.bootstrap, proxied_topic), (proxied_topic,))
    reader = ViewReader(ReadRequest(selection, ReadRange(), Splitting(), "offsets"), OFFSETS)
    [found] = [batch for each in reader.partitions() for batch in reader.read(each)]
    assert found.column("partition").to_pylist() == [0, 1]
    lagging.told_old.wait(0)


def test_a_read_has_every_partition_that_was_added(proxied, proxied_topic, lagging):
    with SelectedLogs(Selection(spec_of(proxied.bootstrap, proxied_topic), (proxied_topic,))) as logs:
        assert [*logs.read(waiting=True)[proxied_topic].bounds] == [0, 1]
    lagging.told_old.wait(0)


@pytest.mark.full
def test_added_partition_is_not_reported_missing(proxied, proxied_topic, lagging):
    with KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log:
        assert layout_with(log, [1]).partitions == 2
    lagging.told_old.wait(0)


@pytest.mark.parametrize("known", [True, *full(False)])
def test_a_plan_is_made_for_every_partition_that_was_added(proxied, proxied_topic, lagging, known):
    with (
        KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log,
        KafkaLog(spec_of(proxied.direct, proxied_topic)) as direct,
    ):
        before = pin_plan(direct, "job", ExpectedOffsets("end")) if known else None
        plan = pin_plan(log, "job", ExpectedOffsets("end"))
        assert plan.partitions == 2
        assert before in (None, replace(plan, rejoined=False))
    lagging.told_old.wait(0)


@pytest.fixture
def unheard(proxied):
    """The name of a topic that the broker reports as missing for a moment, on each connection."""
    topic = f"t-{os.urandom(4).hex()}"
    rules = [proxied.proxy.add(Fault.OLD_RESPONSE, api, times=None) for api in (Api.METADATA, Api.DESCRIBE_CONFIGS)]
    with KafkaLog(spec_of(proxied.bootstrap, topic)) as log, KafkaLog(spec_of(proxied.direct, topic)) as direct:
        for ask in (KafkaLog.layout_now, KafkaLog.tombstones_kept_ms, lambda log: log.bounds(0), KafkaLog.preflight):
            with pytest.raises(LogNotFoundError):
                ask(log)
        direct.create(1)
    yield topic
    assert any(rule.told_old.has_come for rule in rules)


def _claimed(log, direct):
    assert isinstance(log.claim(0, pin_plan(direct, "job", ExpectedOffsets("end"))), Claim)


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda log, _: log.layout(), id="layout", marks=pytest.mark.full),
        pytest.param(lambda log, _: log.bounds(0), id="bounds", marks=pytest.mark.full),
        pytest.param(lambda log, _: [*log.read(0, OffsetRange(0, 0))], id="read", marks=pytest.mark.full),
        pytest.param(lambda log, _: log.preflight(), id="preflight", marks=pytest.mark.full),
        pytest.param(lambda log, _: pin_plan(log, "job", ExpectedOffsets("end")), id="plan"),
        pytest.param(_claimed, id="claim"),
    ],
)
def test_unknown_topic_is_requested_again(proxied, unheard, ask):
    with KafkaLog(spec_of(proxied.bootstrap, unheard)) as log, KafkaLog(spec_of(proxied.direct, unheard)) as direct:
        ask(log, direct)


@pytest.mark.parametrize(
    "ask",
    [
        KafkaLog.layout_now,
        *full(KafkaLog.tombstones_kept_ms),
        pytest.param(lambda log: log.bounds_of([0], waiting=False), id="decided bounds"),
        pytest.param(lambda log: log.offset_since(0, 0), id="offset of a time", marks=pytest.mark.full),
    ],
)
def test_known_topic_is_not_missing_after_one_read(proxied, unheard, ask):
    with KafkaLog(spec_of(proxied.bootstrap, unheard)) as log:
        log.layout()
        log._admin.forget_leaders(unheard)
        for api in (Api.METADATA, Api.DESCRIBE_CONFIGS):
            proxied.proxy.add(Fault.RESET_BEFORE_REQUEST, api)
        ask(log)


def test_creator_learns_at_once_that_the_topic_is_missing(proxied, monkeypatch):
    monkeypatch.setattr(asking, "ConfirmingRead", pytest.fail)
    with KafkaLog(spec_of(proxied.direct, f"t-{os.urandom(4).hex()}")) as log:
        with pytest.raises(LogNotFoundError):
            log.layout_now()
        log.create(1)


@pytest.fixture
def unheard_registry(proxied, proxied_topic):
    """The spec of a log whose registry the broker reports as missing for a moment, on each connection."""
    rule = proxied.proxy.add(Fault.OLD_RESPONSE, Api.METADATA, times=None)
    spec = spec_of(proxied.bootstrap, proxied_topic, request_seconds=2.5 * _LATE_SECONDS)
    with KafkaLog(spec) as log:
        assert log.plan("job") is None
    yield spec
    rule.told_old.wait(0)


@pytest.mark.full
def test_known_registry_is_not_missing_after_one_read(proxied, unheard_registry):
    spec = unheard_registry
    with KafkaLog(spec) as log, KafkaLog(replace(spec, bootstrap_servers=proxied.direct)) as direct:
        pin_plan(direct, "job", ExpectedOffsets("end"))
        wait_until(lambda: log.plan("job") is not None, SECONDS, lambda: "the broker still reports the old state")
        log.layouts()
        plan = pin_plan(direct, "another", ExpectedOffsets("end"))
        expand_log(direct, 2)

        def with_an_outdated_broker(ask):
            for topic in (spec.registry_topic, spec.layouts_topic):
                log._admin.forget_leaders(topic)
            proxied.proxy.add(Fault.RESET_BEFORE_REQUEST, Api.METADATA)
            return ask()

        assert with_an_outdated_broker(lambda: log.plan("another")) == plan
        assert with_an_outdated_broker(log.layouts).layout.partitions == 2


def test_a_broker_that_answered_late_is_not_believed_that_there_is_no_registry(proxied, unheard_registry):
    """The broker may have stalled since before the topic was created.

    librdkafka itself requests missing topics, so the rule holds all requests of this client.
    """
    spec = replace(unheard_registry, client_options=(*unheard_registry.client_options, ("client.id", "late")))
    with KafkaLog(replace(spec, bootstrap_servers=proxied.direct)) as direct:
        plan = pin_plan(direct, "job", ExpectedOffsets("end"))

    def asks_for_layouts(request):
        return of_client("late")(request) and naming(spec.layouts_topic)(request)

    late = proxied.proxy.add(Fault.HOLD_RESPONSE, Api.METADATA, where=asks_for_layouts, times=None)
    with KafkaLog(spec) as log, ThreadPoolExecutor(1) as threads:
        found = threads.submit(log.plan, "job")
        late.reached.wait(SECONDS)
        time.sleep(_LATE_SECONDS)
        late.release()
        assert found.result(SECONDS) == plan


@pytest.fixture
def depose(proxied):
    """A function that makes the leaders of a topic return its first end offsets, until the next append to it."""
    deposed = set[bytes]()

    def of_deposed(request):
        # The names of some other topics begin with the name of this topic and a dot.
        return any(each in request.frame and each + b"." not in request.frame for each in deposed)

    def to_append(request):
        if of_deposed(request):
            deposed.clear()
        return False

    proxied.proxy.add(Fault.OLD_RESPONSE, Api.LIST_OFFSETS, times=None, deposed_for=of_deposed)
    proxied.proxy.add(Fault.WATCH, Api.PRODUCE, where=to_append)
    return lambda topic: deposed.add(topic.encode())


def test_threshold_is_after_acknowledged_records(proxied_topic, direct, log, depose):
    assert log.bounds(0).end_offset == 0
    end = append_foreign(direct, 0, "x").range.end_offset
    intent = direct.begin_expansion(direct.layout(), 2)
    depose(proxied_topic)
    assert log.bounds(0).end_offset == 0
    assert log.end_partition(0, intent) >= end


def test_barrier_waits_for_a_broker_with_the_known_end(proxied, proxied_topic, direct, log):
    outdated = proxied.proxy.add(Fault.OLD_RESPONSE, Api.LIST_OFFSETS, times=None)
    assert log.bounds(0).end_offset == 0
    seen = append_foreign(direct, 0, "x").range.end_offset
    assert end_offsets.barrier(log._admin, TopicPartition(proxied_topic, 0), SECONDS, seen).end_offset >= seen
    outdated.told_old.wait(0)


def test_expansion_fences_a_job_missing_in_a_stale_registry(direct, log, depose):
    pin_plan(direct, "another", ExpectedOffsets("none"))
    assert log.jobs() == ("another",)
    writer = JobWriter(direct, pin_plan(direct, "job", ExpectedOffsets("none")))
    depose(direct.spec.registry_topic)
    assert log.jobs() == ("another",)
    log.end_partition(0, Intent(epoch=2, partitions=2, before=1))
    assert isinstance(writer.append(table_of(["x"])), Fenced)
