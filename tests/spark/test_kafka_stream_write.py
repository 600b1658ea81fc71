"""The streaming sink on a broker, in real queries."""

import pytest
from confluent_kafka import Producer

from spark_cas import open_log, route
from spark_cas.log.load.planning import job_progress
from tests.kafka.clients import create_topic
from tests.spark.sinks import Source, keys, replay, run
from tests.support.writing import values_in

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]


def test_batches_are_appended_once_among_the_records_of_others(spark, broker, tmp_path):
    source, checkpoint = Source(spark, tmp_path / "source"), str(tmp_path / "checkpoint")
    topic = create_topic(broker.bootstrap, 3)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "job": "copy"}
    routed = route(source.stream(), options)
    theirs = Producer({"bootstrap.servers": broker.bootstrap})
    rows = []
    for number, file in enumerate([keys(1), keys(30), keys(5)]):
        for partition in range(3):
            theirs.produce(topic, "x", partition=partition)
        assert theirs.flush(60) == 0
        rows += source.add("abc"[number], *file)
        run(routed, checkpoint, **options)
        replay(checkpoint, number)
        run(routed, checkpoint, **options)
    with open_log(f"kafka://{broker.bootstrap}/{topic}") as log:
        values = [value for partition in range(3) for value in values_in(log, partition)]
        assert sorted(value for value in values if value != "x") == sorted(rows)
        assert values.count("x") == 9
        held = [each.batch for each in job_progress(log, "copy")]
        assert all(batch and batch.complete for batch in held)
        assert max(batch.id for batch in held if batch) == 2
