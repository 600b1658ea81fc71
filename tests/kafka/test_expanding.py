"""Expansion of a topic: writers that stall during it, other tools that expand, and the necessary ACLs."""

from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_cas.core.expansion import Expansion
from spark_cas.core.outcome import LayoutChanged
from spark_cas.core.plan import BY_KEY, PartitionResult
from spark_cas.log.expanding import expand_log
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.client_errors import on_topic
from spark_cas.log.load.planning import complete_job, job_progress
from spark_cas.options.parse import parse_read_stream
from spark_cas.options.read_range import ReadRange, Splitting
from spark_cas.options.request import ReadRequest, Selection
from spark_cas.spark.reading.read import ViewReader
from spark_cas.spark.reading.selected_logs import SelectedLogs
from spark_cas.spark.reading.stream_read import RecordsStreamReader
from spark_cas.spark.schema import OFFSETS, RECORDS
from tests.kafka.clients import SECONDS, admin_of, committed_values, create_topic
from tests.kafka.documented_rights import KAFKA, documented
from tests.kafka.faulted import spec_of
from tests.kafka.readers import open_transaction, wait_for
from tests.kafka.stopped import stopped_at, undecided
from tests.kafka.test_acls import WITH_EXPANSIONS, least, refused_soon, spec
from tests.support.programs import run_cli
from tests.support.writing import JobWriter, append_foreign, plan_of, table_of, values_in

__all__ = ["spec"]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param("begin", "none", marks=pytest.mark.full),
        pytest.param("produced", "none", marks=pytest.mark.full),
        ("commit", "none"),
        ("produced", "end"),
    ],
)
def test_sleeping_writer_appends_nothing_after_a_threshold(broker, topic, step, expected):
    """The writer stops within a chunk and resumes after the expansion. Its id is the job's or the partition's."""
    with stopped_at(step, broker, topic, timeout_ms=20_000, expected=expected) as told:
        with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
            expand_log(log, 2)
            (threshold,) = log.layouts().expansions[0].thresholds
        assert undecided(broker.bootstrap, topic) == 0
    assert told == ["LayoutChanged"]
    assert committed_values(broker.bootstrap, topic) == [*"ab"]
    assert undecided(broker.bootstrap, topic) == 0
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        assert log.bounds(0).end_offset == threshold


def test_foreign_open_transaction_is_waited_for(broker, topic):
    theirs = open_transaction(broker.bootstrap, topic, f"theirs/{topic}")
    impatient = replace(spec_of(broker.bootstrap, topic), open_transaction_wait_ms=1_000)
    with KafkaLog(impatient) as log, refused_soon() as refused:
        expand_log(log, 2)
    assert "a transaction has been open at offset 0" in str(refused.value)
    theirs.commit_transaction(SECONDS)
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        expand_log(log, 2)
        assert log.layouts().expansions[0].thresholds == (log.bounds(0).end_offset,)


def send(broker, topic, partition, value):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value, partition=partition)
    assert producer.flush(SECONDS) == 0


def add_partitions(broker, topic, count):
    admin = admin_of(broker.bootstrap)
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(SECONDS)
    wait_for(lambda: len(admin.list_topics(topic, SECONDS).topics[topic].partitions) == count, "the partitions")


def batch(reader, start):
    """Return the end of the next batch, and its values."""
    end = reader.latestOffset(start, ReadAllAvailable())
    tasks = reader.partitions(start, end) if end != start else []
    records = (records for task in tasks for records in reader.read(task))
    return end, [value.decode() for each in records for value in each.column("value").to_pylist()]


@pytest.mark.parametrize("expected", ["end", "none"])
def test_a_writer_appends_nothing_once_another_tool_added_partitions(broker, topic, expected):
    """No other writer fences it, and it makes no new claim. But its rows were routed for fewer partitions."""
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        plan = plan_of(log, "job", expected)
        log.record_plan(plan)
        writer = JobWriter(log, plan)
        writer.must_append("a")
        add_partitions(broker, topic, 3)
        assert [writer.append(table_of("b")) for _ in range(2)] == [LayoutChanged(1, 3)] * 2
        assert undecided(broker.bootstrap, topic) == 0
        assert values_in(log, 0) == ["a"]


def test_expansion_fences_ids_of_jobs_that_may_still_write(broker, topic):
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        other_topic = replace(plan_of(log, "other-topic", "none"), log_id="another")
        by_key = replace(plan_of(log, "by-key"), compare=BY_KEY)
        names = ("end", "none", "none-complete", "none-complete-elsewhere", "end-complete")
        plans = {name: plan_of(log, name, name.split("-")[0]) for name in names}
        for plan in (other_topic, by_key, *plans.values()):
            log.record_plan(plan)
        for name in ("end-complete", "none-complete"):
            writer = JobWriter(log, plans[name])
            writer.must_append("a", complete=True)
            complete_job(log, plans[name], tuple(PartitionResult(each, 0, 0) for each in job_progress(log, name)))
        complete_job(log, plans["none-complete-elsewhere"], ())
        log_id = log.layout().log_id
        assert log.jobs_with_own_id(log_id, 0) == ["by-key", "none", "none-complete-elsewhere"]
        assert log.jobs_with_own_id(log_id, 1) == []


@pytest.mark.parametrize("topic", [2], indirect=True)
def test_stream_reads_foreign_partitions_after_older_records(broker, topic):
    """The stream also waits for records in an open transaction, which may commit later."""
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingoffsets": "earliest"}

    def reader():
        return RecordsStreamReader(parse_read_stream(options), RECORDS)

    one = reader()
    send(broker, topic, 1, "a")
    start, values = batch(one, one.initialOffset())
    assert values == ["a"]
    theirs = open_transaction(broker.bootstrap, topic, f"theirs/{topic}")
    add_partitions(broker, topic, 4)
    send(broker, topic, 3, "later")
    start, values = batch(one, start)
    assert (values, start[topic]["layout_epoch"]) == ([], 4)
    assert start[topic]["held"] == [{"epoch": 4, "partitions": 4, "thresholds": [1, 1]}]
    assert batch(one, start) == (start, [])
    assert batch(reader(), start) == (start, [])
    theirs.commit_transaction(SECONDS)
    again = reader()
    wait_for(lambda: again.latestOffset(start, ReadAllAvailable()) != start, "the record that was open")
    start, values = batch(again, start)
    assert values == ["undecided"]
    start, values = batch(reader(), start)
    assert values == ["later"]
    assert "held" not in start[topic]


def test_a_topic_that_another_tool_expanded_in_between_is_expanded_further(broker, topic):
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        append_foreign(log, 0, *"ab")
        expand_log(log, 2)
        add_partitions(broker, topic, 3)
        plan = plan_of(log, "job")
        assert plan.partitions == 3
        append_foreign(log, 2, "c")
        known = log.layouts(2).expansions
        assert [(each.before, each.partitions) for each in known] == [(1, 2), (2, 3)]
        assert log.layouts().expansions == known[:1]
        expand_log(log, 6)
        assert [each.partitions for each in log.layouts().expansions] == [2, 6]
        assert log.layouts().expansions[1].before == 3
        append_foreign(log, 5, "d")
        assert (values_in(log, 2), values_in(log, 5)) == (["c"], ["d"])


@pytest.mark.parametrize(("policy", "told"), [("compact", True), ("delete", False)])
def test_expansion_of_a_compacted_topic_warns_of_deleted_keys(broker, policy, told):
    topic = create_topic(broker.bootstrap, 1, cleanup_policy=policy)
    command = ["expand", "--bootstrap-servers", broker.bootstrap, "--topic", topic, "--partitions", "2"]
    ended = run_cli(*command)
    assert ended.code == 0
    assert ("a bootstrap returns the old value" in ended.err) is told


def test_expansion_names_a_missing_right_before_it_begins(secured, spec):
    rights = [*least(spec.topic, spec.prefix).values()]
    secured.allow(rights)
    with KafkaLog(spec) as log, refused_soon() as refused:
        expand_log(log, 2)
    assert f"lacks an ACL: {on_topic('Alter', spec.topic)}." in str(refused.value)
    with KafkaLog(spec) as log:
        assert log.layouts().pending is None
        append_foreign(log, 0, "a")
    secured.allow([*rights, on_topic("Alter", spec.topic)])
    with KafkaLog(spec) as log:
        assert expand_log(log, 2).partitions == 2
        expansions = log.layouts().expansions
    # A stream with the ACL for the topic alone continues without the expansions. Other readers fail.
    secured.allow([on_topic("Read", spec.topic)])
    selection = Selection(spec, (spec.topic,))
    view = ViewReader(ReadRequest(selection, ReadRange(), Splitting(), "offsets"), OFFSETS)
    with refused_soon() as refused:
        view.partitions()
    assert f"lacks an ACL: {on_topic('Read', spec.layouts_topic)}." in str(refused.value)
    with SelectedLogs(selection) as logs:
        begun = logs.in_layouts(logs.read(waiting=False), {})[spec.topic]
        assert (begun.expansions, [*begun.bounds]) == ((), [0, 1])
    with KafkaLog(spec) as log:
        assert log.layouts(1).expansions == expansions == (Expansion(2, 2, (log.bounds(0).end_offset,)),)
    secured.allow(documented(KAFKA, WITH_EXPANSIONS, spec.topic, spec.prefix)[:2])
    assert view.partitions()
    with KafkaLog(spec) as log:
        assert log.layouts().expansions == expansions
