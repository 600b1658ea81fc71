"""Writes of one frame to the topics in its column `topic`: each topic has its own plan, conditions and progress."""

import json
import os
import uuid
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as sf

from spark_cas import append_if_unchanged, error_from_text, open_log, route
from spark_cas.core.errors import (
    AccessDeniedError,
    ConflictError,
    InputChangedError,
    LoadInProgressError,
    LogNotFoundError,
    NotRoutedError,
    OptionError,
    SchemaError,
    StorageError,
    TruncatedError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.partitioner import partition_of
from spark_cas.log.expanding import expand_log
from spark_cas.log.kafka.client.client_errors import on_topic
from spark_cas.log.load.cancelling import Rejection
from spark_cas.log.load.locking import Applicant, acquire_lock, process_name, release_lock
from spark_cas.log.load.planning import pin_plan
from spark_cas.spark.writing.report import TaskReport
from spark_cas.spark.writing.topics_write import TopicReport, TopicsWriter, plan_topics
from spark_cas.spark.writing.write import CheckedWrite
from tests.kafka.secured import sasl, secured_broker
from tests.kafka.test_acls import least
from tests.long import full
from tests.spark.session_settings import session_settings
from tests.spark.tasks import failed_tasks
from tests.support.writing import JobWriter, append_foreign, records_in
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

PARTITIONS = {"a": 2, "b": 3}
ROWS = 60


class Topics:
    """Topics with names that no other test uses."""

    def __init__(self, servers, names):
        self.servers = servers
        prefix = f"flights-{uuid.uuid4().hex[:8]}-"
        self.name = {each: prefix + each for each in names}

    @property
    def options(self):
        return {"kafka.bootstrap.servers": self.servers, "job": "load-1"}

    def log(self, topic):
        return open_log(f"kafka://{self.servers}/{self.name[topic]}")

    def create(self, partitions):
        for topic, count in partitions.items():
            with self.log(topic) as log:
                log.create(count)

    def append_foreign(self, topic, partition):
        with self.log(topic) as log:
            append_foreign(log, partition, "-1")

    def values(self, topic):
        """Return the values of each partition."""
        with self.log(topic) as log:
            partitions = range(log.layout().partitions)
            return [[int(row["value"]) for _, row in records_in(log, each)] for each in partitions]

    def all_values(self, topic):
        return sorted(value for values in self.values(topic) for value in values)

    def frame(self, spark, rows=ROWS, topics="abc"):
        """Return rows with ten keys. The topics alternate."""
        names = sf.array(*(sf.lit(self.name.get(each, each)) for each in topics))
        ids = spark.range(rows, numPartitions=2)
        return ids.select(
            sf.concat(sf.lit("N"), sf.col("id") % 10).alias("key"),
            sf.col("id").cast("string").alias("value"),
            names[(sf.col("id") % len(topics)).cast("int")].alias("topic"),
        )


@pytest.fixture
def topics(broker):
    topics = Topics(broker.bootstrap, "abc")
    topics.create(PARTITIONS)
    return topics


def save(df, options, **more):
    df.write.format("conditional-log").mode("append").options(**{**options, **more}).save()


def error_of(kind, action):
    with pytest.raises(Exception) as caught:
        action()
    error = error_from_text(str(caught.value))
    assert error is not None
    assert type(error) is kind, str(caught.value)
    return error


def refused(kind, action):
    return error_of(kind, action).message


def expected_values():
    """Return the values of each partition of the two topics that exist, in the order of `route`."""
    expected = {}
    for at, (topic, count) in enumerate(PARTITIONS.items()):
        ids = range(at, ROWS, len(PARTITIONS))
        keys = pa.record_batch({"key": pa.array([b"N%d" % (each % 10) for each in ids], pa.binary())})
        rows = [*zip(ids, partition_of(keys, count).to_pylist(), strict=True)]
        by_partition = [[each for each, to in rows if to == partition] for partition in range(count)]
        # `route` sorts by key, then by the value as text.
        expected[topic] = [sorted(values, key=lambda each: (each % 10, str(each))) for values in by_partition]
    return expected


def test_rows_are_in_their_topic_and_partition_once(spark, topics):
    df, options = topics.frame(spark, topics="ab"), topics.options
    for _ in range(2):
        routed = route(df, options)
        assert routed.rdd.getNumPartitions() == sum(PARTITIONS.values())
        save(routed, options)
        assert {topic: topics.values(topic) for topic in "ab"} == expected_values()
    with topics.log("a") as log:
        assert log.load_locks().held == ()


def test_each_topic_recognises_the_job_without_the_others(spark, topics):
    df, options = topics.frame(spark, topics="ab"), topics.options
    one = {**options, "topic": topics.name["a"]}
    only = df.where(sf.col("topic") == topics.name["a"])
    save(route(only, one), one)
    save(route(df, options), options)
    save(route(only, one), one)
    assert {topic: topics.values(topic) for topic in "ab"} == expected_values()


def test_changed_rows_of_one_topic_are_rejected_by_name(spark, topics):
    df, options = topics.frame(spark, topics="ab"), topics.options
    save(route(df, options), options)
    message = refused(InputChangedError, lambda: save(route(df.where("value != '17'"), options), options))
    assert message.startswith(f"topic {topics.name['b']}: partition")
    assert message.endswith(f"Complete topics: {topics.name['a']} (30 rows).")
    topics.create({"c": 2})
    moved = df.replace(topics.name["a"], topics.name["c"], "topic")
    for rows in (moved, df.where(sf.col("topic") == topics.name["b"])):
        message = refused(InputChangedError, lambda rows=rows: save(route(rows, options), options))
        assert message.startswith(f"topic {topics.name['a']} has 30 rows of job 'load-1', but the input now has none")
    assert topics.all_values("c") == []
    assert {topic: topics.values(topic) for topic in "ab"} == expected_values()


def test_partitions_creates_the_topics_that_are_missing(spark, topics):
    df, options = topics.frame(spark, topics="c"), {**topics.options, "partitions": 4}
    save(route(df, options), options)
    assert [len(topics.values("c")), len(topics.all_values("c"))] == [4, ROWS]
    both = topics.frame(spark, topics="ac")
    message = refused(OptionError, lambda: route(both, options))
    assert message.startswith(f"topic {topics.name['a']}: option partitions is 4, but the log has 2")


def with_foreign_records(routed, topics, *blocked):
    """Return a routed frame. Before a write of it reads rows of these topics, another writer appends to them."""
    urls = {topics.name[each]: f"kafka://{topics.servers}/{topics.name[each]}" for each in blocked}

    def run(batches):
        for number, batch in enumerate(batches):
            url, partition = urls.get(batch.column("topic")[0].as_py()), batch.column("partition")[0].as_py()
            if number == 0 and url and partition >= 0:
                with open_log(url) as log:
                    append_foreign(log, partition, "-1")
            yield batch

    return changed_in_tasks(routed, run)


def changed_in_tasks(routed, run):
    """Return a routed frame whose tasks apply a function to their batches."""
    return routed.mapInArrow(run, routed.schema).withMetadata("partition", routed.schema["partition"].metadata)


def test_conflict_in_one_topic_does_not_stop_the_other(spark, topics):
    df, options, name = topics.frame(spark, topics="ab"), topics.options, topics.name
    blocked = with_foreign_records(route(df, options), topics, "a")
    error = error_of(ConflictError, lambda: save(blocked, options))
    assert error.message.startswith(f"topic {name['a']}: partition ")
    assert error.message.endswith(f"Complete topics: {name['b']} (30 rows).")
    assert (error.next_offsets.keys(), error.appended_rows) == ({name["a"]}, {name["a"]: {}})
    assert topics.values("b") == expected_values()["b"]
    for topic in "ab":
        with topics.log(topic) as log:
            assert log.load_locks().held == ()
    again = {**options, "expectedOffsets": json.dumps(error.next_offsets)}
    save(route(df, again), again)
    assert topics.values("b") == expected_values()["b"]
    used = sum(bool(values) for values in expected_values()["a"])
    assert topics.all_values("a") == sorted([*[-1] * used, *range(0, ROWS, 2)])


@pytest.mark.full
def test_conflict_in_each_topic_is_in_one_error(spark, topics):
    options, name = topics.options, topics.name
    blocked = with_foreign_records(route(topics.frame(spark, topics="ab"), options), topics, "a", "b")
    error = error_of(ConflictError, lambda: save(blocked, options))
    assert error.message.startswith(f"topic {name['a']}: partition ")
    assert f"[CONFLICT] topic {name['b']}: partition " in error.message
    assert error.message.endswith("Complete topics: none.")
    assert error.next_offsets.keys() == {name["a"], name["b"]}


def lock_for_another_load(topics):
    """Lock topic b for a load of this process, which runs."""
    with topics.log("b") as log:
        acquire_lock(log, Applicant("other", "run", process_name(os.getpid())), ExpectedOffsets("end"))


@pytest.mark.parametrize(
    ("prepare", "offsets", "kind"),
    [
        (lambda topics: topics.append_foreign("b", 1), {"1": 0}, ConflictError),
        pytest.param(lambda _: None, {"1": 7}, TruncatedError, marks=pytest.mark.full),
        pytest.param(lambda _: None, {"3": 0}, OptionError, marks=pytest.mark.full),
        (lock_for_another_load, {"1": 0}, LoadInProgressError),
    ],
    ids=["conflict", "truncated", "no such partition", "another load"],
)
def test_rejected_write_of_one_topic_leaves_no_plan(spark, topics, prepare, offsets, kind):
    """So a corrected run of the same job does not expect the offsets of the rejected run."""
    prepare(topics)
    df, name = topics.frame(spark, topics="ab"), topics.name
    stale = {**topics.options, "expectedOffsets": json.dumps({name["b"]: offsets})}
    assert refused(kind, lambda: save(route(df, stale), stale)).startswith(f"topic {name['b']}: ")
    before = topics.all_values("b")
    assert [topics.all_values("a"), before] == [[], [-1] * (kind is ConflictError)]
    for topic in "ab":
        with topics.log(topic) as log:
            assert log.plan("load-1") is None
            release_lock(log, log.load_locks().of("other"))
            assert log.load_locks().held == ()
    topics.append_foreign("a", 0)
    save(route(df, topics.options), topics.options)
    assert topics.all_values("a") == [-1, *range(0, ROWS, 2)]
    assert topics.all_values("b") == sorted([*before, *range(1, ROWS, 2)])


def test_plan_that_is_rejected_after_the_checks_releases_the_other_topic(spark, topics, monkeypatch):
    """Another writer appends to topic b after the check of its plan."""
    routed = route(topics.frame(spark, topics="ab"), topics.options)
    expected = {**topics.options, "expectedOffsets": json.dumps({topics.name["b"]: {"1": 0}})}
    plan = CheckedWrite.plan

    def overtaken(write, log, *, record=True):
        result = plan(write, log, record=record)
        if not record and write.request.spec.topic == topics.name["b"]:
            append_foreign(log, 1, "-1")
        return result

    monkeypatch.setattr(CheckedWrite, "plan", overtaken)
    with pytest.raises(ConflictError, match=f"topic {topics.name['b']}: partition 1: expected offset 0"):
        plan_topics(expected, routed.schema)
    for topic in "ab":
        with topics.log(topic) as log:
            assert log.load_locks().held == ()
    monkeypatch.undo()
    save(routed, topics.options)
    assert [topics.all_values(each) for each in "ab"] == [[*range(0, ROWS, 2)], [-1, *range(1, ROWS, 2)]]


def test_user_without_the_right_to_write_to_one_topic_appends_nothing(spark, conf, tmp_path):
    with secured_broker(conf, tmp_path) as secured:
        topics = Topics(secured.open, "ab")
        topics.create(PARTITIONS)
        prefix = "flights-writer"
        allowed = {*least(topics.name["a"], prefix).values(), on_topic("Read", topics.name["b"])}
        secured.allow(allowed)
        settings = {f"kafka.{name}": value for name, value in sasl().items()}
        options = {**topics.options, "kafka.bootstrap.servers": secured.sasl, "idPrefix": prefix, **settings}
        routed = route(topics.frame(spark, topics="ab"), options)
        message = refused(AccessDeniedError, lambda: save(routed, options))
        assert message.startswith(f"topic {topics.name['b']}: ")
        assert "ACL" in message
        assert [topics.all_values(each) for each in "ab"] == [[], []]
        with open_log(f"kafka://{secured.open}/{topics.name['a']}", {"idPrefix": prefix}) as log:
            assert log.plan("load-1") is None
        secured.allow({*allowed, on_topic("Write", topics.name["b"])})
        save(routed, options)
        assert {topic: topics.values(topic) for topic in "ab"} == expected_values()


@pytest.mark.parametrize("removed", [-3, *full(-1)])
def test_partition_without_its_end_marker_is_not_complete(spark, topics, removed):
    """Only topic b, which has three partitions, has an end marker -3."""

    def run(batches):
        for batch in batches:
            marker = pc.and_(
                pc.equal(batch.column("topic"), topics.name["b"]), pc.equal(batch.column("partition"), removed)
            )
            yield batch.filter(pc.invert(marker))

    df, options = topics.frame(spark, topics="ab"), topics.options
    message = refused(NotRoutedError, lambda: save(changed_in_tasks(route(df, options), run), options))
    assert message.startswith(f"topic {topics.name['b']}: the DataFrame was changed after spark_cas.route")
    assert "a partition has no end marker" in message
    with topics.log("a") as complete, topics.log("b") as incomplete:
        assert complete.completion("load-1").rows == ROWS // 2
        assert incomplete.completion("load-1") is None
    save(route(df, options), options)
    assert {topic: topics.values(topic) for topic in "ab"} == expected_values()


def test_offsets_of_a_topic_without_rows_are_checked(spark, topics):
    topics.append_foreign("b", 1)
    df, name = topics.frame(spark, topics="a"), topics.name
    stale = {**topics.options, "expectedOffsets": json.dumps({name["b"]: {"1": 0}})}
    assert name["b"] in refused(ConflictError, lambda: save(route(df, stale), stale))
    assert topics.all_values("a") == []
    without = route(df, topics.options)
    assert f"names topic {name['b']}" in refused(NotRoutedError, lambda: save(without, stale))


def has_rows(url, partition):
    with open_log(url) as log:
        return log.bounds(partition).end_offset > 0


@pytest.mark.full
def test_failed_task_resumes_in_its_topic(spark, topics):
    """The first attempt of each task with more than five rows fails after it has appended a chunk."""
    df = topics.frame(spark, topics="ab")
    # Spark buffers small values until the task has all of them.
    large = df.withColumn("value", sf.concat("value", sf.repeat(sf.lit(" "), 100_000)))
    options = {**topics.options, "maxRecordsPerChunk": 2}
    routed = route(large, options)
    urls = {topics.name[each]: f"kafka://{topics.servers}/{topics.name[each]}" for each in "ab"}

    def run(batches):
        for number, batch in enumerate(batches):
            yield batch
            context = TaskContext.get()
            if number == 5 and context is not None and context.attemptNumber() == 0:
                topic, partition = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
                wait_until(partial(has_rows, urls[topic], partition), 60, lambda: "nothing was appended")
                raise RuntimeError("power cut")

    failing = changed_in_tasks(routed, run)
    spark.sparkContext.setJobGroup(topics.name["a"], "a write whose tasks fail once")
    with session_settings(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}):
        save(failing, options)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    failures = failed_tasks(spark.sparkContext, topics.name["a"])
    assert len(failures) >= len(PARTITIONS)
    assert all("power cut" in each for each in failures)
    assert {topic: topics.values(topic) for topic in "ab"} == expected_values()
    progress = {}
    for topic in "ab":
        view = spark.read.format("conditional-log").options(**reading(topics, topic), view="progress").load()
        progress[topic] = view.agg(sf.sum("resumed_rows"), sf.min("complete"), sf.sum("rows")).collect()[0]
    assert all(each[0] > 0 and each[1:] == (True, ROWS // 2) for each in progress.values()), progress


def reading(topics, topic):
    return {"kafka.bootstrap.servers": topics.servers, "topic": topics.name[topic]}


def test_topic_that_does_not_exist(spark, topics):
    df = topics.frame(spark, topics="abc")
    message = refused(LogNotFoundError, lambda: route(df, topics.options))
    assert message.startswith(f"topic {topics.name['c']}: ")
    assert [topics.all_values(each) for each in "ab"] == [[], []]


def test_rejected_options_of_one_topic_append_nothing(spark, topics):
    options = {**topics.options, "partitions": 4}
    routed = route(topics.frame(spark, topics="ac"), {**topics.options, "partitions": 2})
    message = refused(OptionError, lambda: save(routed, options))
    assert message.startswith(f"topic {topics.name['a']}: option partitions is 4")
    assert "there is no log at" in refused(LogNotFoundError, lambda: save(routed, topics.options))
    assert topics.all_values("a") == []


@pytest.mark.parametrize(
    ("topic", "kind", "text"),
    [
        ("CAST(NULL AS STRING)", SchemaError, "its column topic is null"),
        pytest.param(
            "IF(value = '17', NULL, topic)", SchemaError, "its column topic is null", marks=pytest.mark.full
        ),
        ("concat('flights-', id)", OptionError, "more than 100 values"),
        ("'fl ights'", OptionError, "'fl ights' is no name of a topic"),
        pytest.param("concat(topic, ' ')", OptionError, "is no name of a topic", marks=pytest.mark.full),
        ("17", SchemaError, "column topic must be string"),
    ],
)
def test_invalid_topics_are_rejected_before_a_row_is_appended(spark, topics, topic, kind, text):
    df = (
        topics.frame(spark, 120, "a").withColumn("id", sf.col("value")).withColumn("topic", sf.expr(topic)).drop("id")
    )
    assert text in refused(kind, lambda: route(df, topics.options))
    assert topics.all_values("a") == []


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("atomic", "load", "atomic=load"),
        pytest.param("report", "report.json", "option report needs option topic", marks=pytest.mark.full),
        pytest.param("roundOf", "load", "option roundOf needs option topic", marks=pytest.mark.full),
        ("expectedOffsets", '{"0": 5}', '{"flights": {"0": 17, "3": null}}'),
    ],
)
def test_options_of_one_topic_are_rejected(spark, topics, option, value, text):
    df, options = topics.frame(spark, topics="ab"), {**topics.options, option: value}
    assert text in refused(OptionError, lambda: route(df, options))
    assert text in refused(OptionError, lambda: save(route(df, topics.options), options))
    assert [topics.all_values(each) for each in "ab"] == [[], []]


@pytest.mark.full
def test_each_batch_of_a_stream_is_a_load_in_foreach_batch(spark, topics, tmp_path):
    topics.frame(spark, topics="ab").write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema("key string, value string, topic string").parquet(str(tmp_path / "rows"))

    def append(batch, number):
        options = {**topics.options, "job": f"load-{number}"}
        for _ in range(2):
            save(route(batch, options), options)

    query = stream.writeStream.foreachBatch(append).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(200)
    assert [topics.all_values(each) for each in "ab"] == [[*range(0, ROWS, 2)], [*range(1, ROWS, 2)]]


def test_append_if_unchanged_needs_option_topic(spark, topics):
    df = topics.frame(spark, topics="ab").withColumn("expected_offset", sf.lit(0).cast("long"))
    message = refused(OptionError, lambda: append_if_unchanged(df, topics.options))
    assert "needs a topic" in message
    assert [topics.all_values(each) for each in "ab"] == [[], []]


def test_option_topic_overrides_the_column(spark, topics):
    df, options = topics.frame(spark, topics="bc"), {**topics.options, "topic": topics.name["a"]}
    save(route(df, options), options)
    assert [topics.all_values(each) for each in "ab"] == [[*range(ROWS)], []]


def test_column_topic_of_a_write_to_a_directory_is_rejected(spark, topics, path, tmp_path):
    df, options = topics.frame(spark, topics="ab"), {"path": path, "partitions": 2}
    for write in (options, {**options, "idempotence": "off", "expectedOffsets": "none"}):
        message = refused(SchemaError, lambda write=write: save(route(df, write), write))
        assert "the path of this write is one log" in message
    df.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema("key string, value string, topic string").parquet(str(tmp_path / "rows"))
    writer = route(stream, options).writeStream.format("conditional-log").options(**options)
    start = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start
    assert "the path of this write is one log" in refused(SchemaError, lambda: start().awaitTermination(120))
    with pytest.raises(LogNotFoundError), open_log(path) as log:
        log.layout()


def test_frame_that_was_not_routed_to_its_topics_is_rejected(spark, topics):
    df, options = topics.frame(spark, topics="ab"), topics.options
    one = {**options, "topic": topics.name["a"]}
    for frame in (route(df, one), df.withColumn("partition", sf.lit(0))):
        message = refused(NotRoutedError, lambda frame=frame: save(frame, options, routed=True))
        assert "was not routed to the topics" in message
    assert "the frame was not routed" in refused(NotRoutedError, lambda: save(route(df, options), one))
    assert [topics.all_values(each) for each in "ab"] == [[], []]


def test_task_with_rows_of_several_topics_completes_no_topic(spark, topics):
    df, options = topics.frame(spark, topics="ab"), topics.options
    message = refused(NotRoutedError, lambda: save(route(df, options).coalesce(1), options))
    assert "a task has rows of topic" in message
    for topic in "ab":
        with topics.log(topic) as log:
            assert log.completion(options["job"]) is None
            assert log.load_locks().held == ()
    save(route(df, options), options)
    assert {topic: topics.values(topic) for topic in "ab"} == expected_values()


@pytest.mark.full
@pytest.mark.parametrize("other", ["c", None])
def test_topic_that_appears_after_route_is_rejected(spark, topics, other):
    new = sf.udf(lambda value, topic: other if value == "17" and TaskContext.get() else topic, "string")
    options = topics.options
    routed = route(topics.frame(spark, topics="ab"), options)
    changed = routed.withColumn("topic", new("value", "topic"))
    message = refused(NotRoutedError, lambda: save(changed, options))
    assert "a task has rows of topic" in message
    with topics.log("b") as log:
        assert log.completion(options["job"]) is None


@pytest.mark.full
def test_task_with_rows_of_a_topic_that_is_new_completes_no_topic(spark, topics):
    options = topics.options
    changed = route(topics.frame(spark, topics="ab"), options).withColumn("topic", sf.lit(topics.name["c"]))
    assert "a topic that is new since" in refused(NotRoutedError, lambda: save(changed, options))
    for topic in "ab":
        with topics.log(topic) as log:
            assert log.completion("load-1") is None


@pytest.mark.full
def test_routed_frame_can_be_routed_again(spark, topics):
    df, options = topics.frame(spark, topics="ab"), topics.options
    save(route(route(df, options), options), options)
    assert {topic: topics.values(topic) for topic in "ab"} == expected_values()


def test_frame_without_rows_appends_nothing(spark, topics):
    df, options = topics.frame(spark, topics="ab").where("value = 'none'"), topics.options
    save(route(df, options), options)
    assert [topics.all_values(each) for each in "ab"] == [[], []]


def test_order_and_partition_of_the_caller(spark, topics):
    df, options = topics.frame(spark, topics="ab"), topics.options
    placed = df.withColumn("partition", sf.lit(1)).withColumn("value", sf.lpad("value", 3, "0"))
    with pytest.raises(OptionError, match="only names of columns"):
        route(placed, options, by="partition", order_by=[sf.desc("value")])
    save(route(placed, options, by="partition", order_by=["value"]), options)
    assert topics.values("a") == [[], [*range(0, ROWS, 2)]]
    assert topics.values("b") == [[], [*range(1, ROWS, 2)], []]


@pytest.mark.parametrize(
    "options",
    [{"compare": "key"}, *full({"atomic": "true"}, {"expectedOffsets": "none"}, {"idempotence": "requested"})],
)
def test_conditions_apply_to_each_topic(spark, topics, options):
    df, given = topics.frame(spark, topics="ab"), {**topics.options, **options}
    save(route(df, given), given)
    assert [topics.all_values(each) for each in "ab"] == [[*range(0, ROWS, 2)], [*range(1, ROWS, 2)]]


def test_compare_by_key_rejects_a_changed_key_in_its_topic(spark, topics):
    df = topics.frame(spark, topics="ab").withColumn("expected_offset", sf.lit(0).cast("long"))
    first, second = ({**topics.options, "compare": "key", "job": job} for job in ("load-1", "load-2"))
    one_each = df.where("value IN ('0', '1')")
    save(route(one_each, first), first)
    only_a = df.where("value IN ('0', '3')")
    message = refused(ConflictError, lambda: save(route(only_a, second), second))
    assert message.startswith(f"topic {topics.name['a']}: ")
    assert [topics.all_values(each) for each in "ab"] == [[0], [1, 3]]


def test_write_without_exactly_once(spark, topics):
    options = {"kafka.bootstrap.servers": topics.servers, "idempotence": "off", "expectedOffsets": "none"}
    save(route(topics.frame(spark, topics="ab"), options), options)
    assert [topics.all_values(each) for each in "ab"] == [[*range(0, ROWS, 2)], [*range(1, ROWS, 2)]]


def test_job_of_a_topic_with_added_partitions_is_rejected_before_a_row_is_appended(spark, topics):
    with topics.log("b") as log:
        plan = pin_plan(log, "load-1", ExpectedOffsets("end"))
        JobWriter(log, plan).must_append("-1")
        expand_log(log, 5)
    df = topics.frame(spark, topics="ab")
    message = refused(OptionError, lambda: route(df, topics.options))
    assert message.startswith(f"topic {topics.name['b']}: partitions were added to the topic after job 'load-1'")
    assert topics.all_values("a") == []


def test_topics_with_different_defaults_of_compare_are_rejected(spark, topics, tmp_path):
    file = tmp_path / "conditional-log.toml"
    file.write_text(f'[logs.{topics.name["a"]}]\ncompare = "key"\n')
    df, options = topics.frame(spark, topics="ab"), {**topics.options, "conf": str(file)}
    assert "compare differs" in refused(OptionError, lambda: route(df, options))
    save(route(df, {**options, "compare": "key"}), options, compare="key")
    assert [len(topics.all_values(each)) for each in "ab"] == [ROWS // 2] * 2


class Failing:
    """A writer of one topic whose commit raises an error, if it has one."""

    def __init__(self, error=None):
        self.error = error
        self.commits = 0

    def commit(self, messages):
        self.commits += 1
        if self.error is not None:
            raise self.error


def commit(writers, *messages):
    TopicsWriter(writers).commit([*messages])


def test_most_important_error_of_several_topics_is_first():
    writers = {"a": Failing(ConflictError("A.")), "b": Failing(), "c": Failing(InputChangedError("C."))}
    with pytest.raises(InputChangedError) as caught:
        commit(writers)
    assert caught.value.message == "topic c: C. [CONFLICT] topic a: A. Complete topics: b (0 rows)."


def test_offsets_and_rows_in_the_error_of_several_topics_are_by_topic():
    first, second = (ConflictError("x", next_offsets={0: end}, appended_rows={1: end}) for end in (5, 7))
    writers = {"a": Failing(first), "b": Failing(second), "c": Failing(InputChangedError("C."))}
    with pytest.raises(InputChangedError) as caught:
        commit(writers)
    expected = {"a": {0: 5}, "b": {0: 7}}, {"a": {1: 5}, "b": {1: 7}}
    assert (caught.value.next_offsets, caught.value.appended_rows) == expected


def test_commit_of_further_topics_does_not_wait_for_brokers_that_do_not_respond():
    writers = {"a": Failing(), "b": Failing(StorageError("B.")), "c": Failing()}
    with pytest.raises(StorageError) as caught:
        commit(writers)
    assert caught.value.message == "topic b: B. Complete topics: a (0 rows). Incomplete topics: c."
    assert writers["c"].commits == 0


def test_topics_after_one_whose_rows_were_rejected_are_completed():
    report = TaskReport(rejection=Rejection("STORAGE", "the row is too large", (0,)))
    writers = {"a": Failing(StorageError("A.")), "b": Failing()}
    with pytest.raises(StorageError) as caught:
        commit(writers, TopicReport("a", report))
    assert caught.value.message == "topic a: A. Complete topics: b (0 rows)."
