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
        console.print(f"An unmodified Apache Kafka broker listens on {broker.bootstrap}.")
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
    console.print(f"\nDone in {time.monotonic() - began:.0f} s. The broker has stopped. To try more, start one with")
    say("make kafka")


def refuse_load_after_foreign_records(spark: "SparkSession", bootstrap: str, flights: LoadRequest) -> None:
    """Show that a load is rejected if an ordinary producer appends after its plan was made."""
    title("3. An ordinary producer", "it appends between the plan of another load and the first append of the load")
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
        raise RuntimeError("the rejected load changed the topic: this is a bug")
    say("The load appended nothing. Spark's own sink would have appended all rows after those of the producer.")


def produce_everywhere(bootstrap: str, partitions: int) -> None:
    """Append one record to each partition with an ordinary producer."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(partitions):
        producer.produce(TOPIC, b"earlier record", b"other producer", partition=partition)
    if producer.flush(PATIENCE_SECONDS):
        raise RuntimeError(f"the broker acknowledged not all records of the producer in {PATIENCE_SECONDS} seconds")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], "demo_kafka.py", __doc__, demonstrate))
