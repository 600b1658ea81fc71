"""The metrics of writes in each target, and those of queries, on a real session and through Spark Connect."""

import pytest
from pyspark.errors import PySparkException

from spark_cas import open_log, route
from spark_cas.core.errors import OptionError
from spark_cas.log.load.planning import fresh_job_name
from spark_cas.metrics import QueryMetrics
from spark_cas.spark.versions import HAS_READ_LIMITS
from tests.long import full
from tests.spark.addresses import EMBEDDED
from tests.spark.sinks import SECONDS, Source, keys, replay, run
from tests.spark.streams import Stream
from tests.support.metrics import metrics_server, values_in
from tests.support.writing import append_foreign
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def server():
    with metrics_server() as server:
        yield server


def rows(spark, count, first=0):
    return spark.range(first, first + count).selectExpr("concat('N', id % 7) AS key", "string(id) AS value")


def save(frame, options):
    write(route(frame, options), options)


def write(frame, options):
    frame.write.format("conditional-log").mode("append").options(**options).save()


def counts(text, **labels):
    """Return the counters of writes, without the prefix and the seconds."""
    values = values_in(text, **labels).items()
    return {name[10:-6]: value for name, value in values if name.startswith("spark_cas_") and name.endswith("_total")}


@pytest.mark.parametrize("address", EMBEDDED, indirect=True)
def test_load_counts_its_rows_once_despite_reruns_and_rejections(spark, address, tmp_path):
    file = tmp_path / "metrics.prom"
    options = {"path": address, "job": "load", "metrics": f"file:{file}"}
    save(rows(spark, 40), options)
    topic = address.rpartition("/")[2]
    labels = {"job": "load", "topic": topic, "log": address if "://" in address else f"file://{address}"}
    first = counts(file.read_text(), **labels)
    size = first.pop("bytes")
    assert first == {"writes": 1, "failures": 0, "rows": 40, "chunks": 2, "conflicts": 0, "retries": 0}
    assert size > 40 * len("N110")
    seconds = values_in(file.read_text(), **labels)
    assert all(seconds[f"spark_cas_seconds_total {phase}"] >= 0 for phase in ("plan", "append", "commit"))
    assert seconds["spark_cas_seconds_total append"] > 0
    save(rows(spark, 40), options)
    assert counts(file.read_text(), **labels) == {**first, "bytes": size, "writes": 2}
    with pytest.raises(PySparkException, match="CONFLICT"):
        save(rows(spark, 5), {**options, "job": "other", "expectedOffsets": '{"0": 0, "1": 0}'})
    rejected = {"writes": 1, "failures": 1, "rows": 0, "bytes": 0, "chunks": 0, "conflicts": 1, "retries": 0}
    assert counts(file.read_text(), job="other") == rejected
    with pytest.raises(PySparkException, match="CONFLICT"):
        save(rows(spark, 1).selectExpr("*", "0L AS expected_offset"), {**options, "job": "row"})
    assert counts(file.read_text(), job="row") == rejected
    bad = rows(spark, 1).selectExpr("key", "string(raise_error(key)) AS value", "0 AS partition").coalesce(1)
    with pytest.raises(PySparkException):
        write(bad, {**options, "job": "task", "routed": "true"})
    assert counts(file.read_text(), job="task") == {**rejected, "conflicts": 0}
    for named in ({}, {"job": fresh_job_name()}):
        save(rows(spark, 5), {"path": address, "metrics": f"file:{file}", **named})
    assert counts(file.read_text(), job="unnamed")["rows"] == 10


@pytest.mark.parametrize("address", EMBEDDED, indirect=True)
def test_atomic_load_and_load_without_exactly_once_are_counted(spark, address, server):
    options = {"path": address, "job": "atomic", "atomic": "load", "metrics": server.url}
    save(rows(spark, 40), options)
    assert counts(server.text(), job="atomic")["rows"] == 40
    assert counts(server.text(), job="atomic")["chunks"] == 2
    save(rows(spark, 40), options)
    assert counts(server.text(), job="atomic")["rows"] == 40
    late = rows(spark, 40).selectExpr("*", "IF(value = '39', 0L, NULL) AS expected_offset")
    with pytest.raises(PySparkException, match="CONFLICT"):
        save(late, {**options, "job": "late"})
    found = counts(server.text(), job="late")
    assert (found["rows"], found["conflicts"]) == (0, 1)
    save(rows(spark, 6), {"path": address, "idempotence": "off", "metrics": server.url})
    assert counts(server.text(), job="unnamed")["rows"] == 6


@pytest.mark.kafka
@pytest.mark.parametrize("batch", [*full({}), {"batchId": 3}], ids=["load", "batch"])
def test_each_topic_of_a_write_has_its_own_counts(spark, broker, server, batch):
    from tests.kafka.clients import create_topic

    topics = [create_topic(broker.bootstrap), create_topic(broker.bootstrap)]
    frame = rows(spark, 10).selectExpr("*", f"IF(value < 4, '{topics[0]}', '{topics[1]}') AS topic")
    save(frame, {"kafka.bootstrap.servers": broker.bootstrap, "job": "both", "metrics": server.url, **batch})
    found = [counts(server.text(), job="both", topic=each)["rows"] for each in topics]
    assert found == [4, 6]


def test_micro_batches_are_counted_once_despite_a_replay(spark, path, tmp_path, server):
    source, checkpoint = Source(spark, tmp_path / "source"), str(tmp_path / "checkpoint")
    options = {"path": path, "partitions": 2, "job": "live", "metrics": server.url}
    source.add("a", *keys(20))
    source.add("b", *keys(5))
    routed = route(source.stream(), options)
    run(routed, checkpoint, **options)
    found = counts(server.text(), job="live")
    assert (found["writes"], found["rows"]) == (2, 25)
    assert found["bytes"] > 0
    replay(checkpoint, 1)
    run(routed, checkpoint, **options)
    again = counts(server.text(), job="live")
    assert again == {**found, "writes": 3}
    seconds = values_in(server.text(), job="live")
    assert seconds["spark_cas_seconds_total append"] > 0


def test_batches_of_foreach_batch_are_counted(spark, path, tmp_path):
    source, file = Source(spark, tmp_path / "source"), tmp_path / "metrics.prom"
    source.add("a", *keys(20))

    def append(batch, number):
        save(batch, {"path": path, "partitions": 2, "job": "each", "batchId": number, "metrics": f"file:{file}"})

    writer = source.stream().writeStream.foreachBatch(append).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(SECONDS)
    assert counts(file.read_text(), job="each")["rows"] == 20


def test_failing_target_does_not_fail_a_write(spark, path):
    for number, target in enumerate(("file:/missing/metrics.prom", "http://127.0.0.1:1")):
        save(rows(spark, 5), {"path": path, "partitions": 2, "job": f"load-{number}", "metrics": target})
    assert spark.read.format("conditional-log").load(path).count() == 10


def test_invalid_target_is_an_error_without_its_value(spark, path):
    with pytest.raises(OptionError) as raised:
        save(rows(spark, 5), {"path": path, "partitions": 2, "metrics": "http://user:canary@host"})
    assert "canary" not in str(raised.value)
    with pytest.raises(OptionError) as raised:
        QueryMetrics("canary")
    assert "canary" not in str(raised.value)


@pytest.fixture(params=["classic", *full("connect")])
def session(request):
    return request.getfixturevalue("spark" if request.param == "classic" else "connect")


class CountingEnds(QueryMetrics):
    """Counts the queries whose last event it has not received."""

    active = 0

    def onQueryStarted(self, event):  # noqa: N802 - a method of Spark
        super().onQueryStarted(event)
        self.active += 1

    def onQueryTerminated(self, event):  # noqa: N802 - a method of Spark
        super().onQueryTerminated(event)
        self.active -= 1


def test_query_publishes_its_stream_lag(session, address, tmp_path, server):
    with open_log(address) as log:
        append_foreign(log, 0, *"abcd")
        append_foreign(log, 1, "e")
        ends = {f"{partition}": log.bounds(partition).end_offset for partition in (0, 1)}
    numbers = tmp_path / "numbers"
    session.range(3).write.parquet(str(numbers))
    listener = CountingEnds(server.url)
    session.streams.addListener(listener)
    try:
        stream = Stream(session, tmp_path, path=address, startingOffsets="earliest", maxOffsetsPerTrigger="2")
        stream.run()
        assert stream.values() == list("abcde")
        # The listener skips sources that are no logs.
        other = session.readStream.schema("id BIGINT").parquet(str(numbers)).writeStream.format("noop")
        query = other.option("checkpointLocation", str(tmp_path / "other")).queryName("other")
        assert query.trigger(availableNow=True).start().awaitTermination(SECONDS)
        wait_until(
            lambda: values_in(server.text(), job="other").get("spark_cas_query_numInputRows_total") == 3,
            SECONDS,
            server.text,
        )
    finally:
        # On Spark Connect, the call blocks forever if the client has yet to process an event (SPARK-59623).
        wait_until(lambda: not listener.active, SECONDS, lambda: f"{listener.active} queries have not ended")
        session.streams.removeListener(listener)
    [job] = {dict(group)["job"] for group in server.groups} - {"other"}
    found = values_in(server.text(), job=job)
    assert found["spark_cas_query_numInputRows_total"] == 5
    assert found["spark_cas_query_seconds_total addBatch"] > 0
    topic = address.rpartition("/")[2]
    found = values_in(server.text(), job=job, topic=topic)
    if not HAS_READ_LIMITS:
        assert found == {}
        return
    expected = []
    for batch in stream.offsets():
        lag = [ends[partition] - offset for partition, offset in batch[topic]["offsets"].items()]
        values = {"min": min(lag), "max": max(lag), "avg": sum(lag) / 2}
        expected.append({f"spark_cas_query_{name}OffsetsBehindLatest": value for name, value in values.items()})
    assert len(set(expected[0].values())) == 3, "each name has its own value"
    pushed = [values_in(text, topic=topic) for text in server.pushed]
    assert [each for each in pushed if each] == expected
    assert found == expected[-1] == dict.fromkeys(found, 0)
