"""make demo-kafka: load the flights into a topic on a stock Kafka broker. An ordinary producer also writes to it."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from jobs.demo_state import show_state
from jobs.demo_steps import (
    console,
    ends,
    expect_refusal,
    flights_into,
    load,
    load_again,
    run,
    say,
    title,
    write_flights,
)
from jobs.demo_stream import count_departures
from spark_cas import open_log
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.planning import job_progress, pin_plan
from spark_cas.programs.arguments import LoadRequest
from spark_cas.programs.bulk_load import LoadRun
from spark_cas.programs.program import submitted_session
from tools.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = Path(__file__).parents[1] / "conf" / "kafka"
TOPIC = "flights"
PATIENCE_SECONDS = 30


def demonstrate(build: Path, show_log: bool) -> None:  # noqa: FBT001 - as `run` calls it
    """Run the demonstration on its own broker, which it stops at the end."""
    began = time.monotonic()
    flights_2013 = write_flights(build)
    with KafkaBroker(CONF, measured=True) as broker:
        console.print(f"A Kafka broker, as it comes from Apache, listens on {broker.bootstrap}.")
        spark = submitted_session("spark_cas demo on Kafka", show_log=show_log)
        try:
            flights = flights_into(f"kafka://{broker.bootstrap}/{TOPIC}", flights_2013)
            load(spark, flights)
            load_again(spark, flights)
            refuse_load_after_foreign_records(spark, broker.bootstrap, flights)
            show_state(spark, flights.log, build / "demo-kafka" / "departures.png")
            count_departures(spark, broker.bootstrap, TOPIC, build / "demo-kafka" / "checkpoint")
        finally:
            spark.stop()
    console.print(f"\nDone in {time.monotonic() - began:.0f} s. The broker is gone; to try more, start one with")
    say("make kafka")


def refuse_load_after_foreign_records(spark: "SparkSession", bootstrap: str, flights: LoadRequest) -> None:
    """Show that a load is rejected if an ordinary producer appends after its plan was made."""
    title("3. An ordinary producer barges in", "between the plan of another load and its first append")
    job = "flights-2013-corrected"
    corrected = replace(flights, job=job)
    with open_log(flights.log) as log:
        plan = pin_plan(log, job, ExpectedOffsets("end"))
    produce_everywhere(bootstrap, plan.partitions)
    before = ends(flights.log)
    with expect_refusal():
        LoadRun(corrected, lambda: spark, console).run()
    with open_log(flights.log) as log:
        left = job_progress(log, job)
    if left or ends(flights.log) != before:
        raise RuntimeError("the refused load left something in the topic: this is a bug")
    say("Nothing of it is in the topic. Spark's own sink would have appended all of its rows behind them.")


def produce_everywhere(bootstrap: str, partitions: int) -> None:
    """Append one record to each partition with an ordinary producer."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(partitions):
        producer.produce(TOPIC, b"I was here first", b"somebody else", partition=partition)
    if producer.flush(PATIENCE_SECONDS):
        raise RuntimeError("the broker took no record from an ordinary producer")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], "demo_kafka.py", __doc__, demonstrate))
