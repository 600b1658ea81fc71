"""The stream of the demonstration on Kafka: count flights per day, from one topic into another."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from rich.table import Table

from jobs.demo_state import FLIGHT
from jobs.demo_steps import console, ends, say, title
from spark_cas import route

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_A_BATCH = 120_000
SHOWN = 4
PATIENCE_SECONDS = 240


def count_departures(spark: "SparkSession", bootstrap: str, topic: str, checkpoint: Path) -> None:
    """Run a windowed count with a watermark twice, and check that the second run appends nothing."""
    title("5. A stream", "count departures per day, from the topic into another topic")
    shutil.rmtree(checkpoint, ignore_errors=True)
    # A stream keeps state for each shuffle partition: Spark's default of 200 is too many for two cores.
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # stateful streams do not support it, and each warns
    into = {"kafka.bootstrap.servers": bootstrap, "topic": "departures", "partitions": "2", "job": "departures"}
    batches = run(spark, bootstrap, topic, into, checkpoint)
    address = f"kafka://{bootstrap}/departures"
    print_days(spark.read.format("conditional-log").load(address))
    before = ends(address)
    run(spark, bootstrap, topic, into, checkpoint)
    if ends(address) != before:
        raise RuntimeError("the second run of the stream appended rows: this is a bug")
    say(
        f"Each of its {batches} batches is stored once. When it was started again, the query appended nothing. A day",
        "is counted after the watermark has passed it, so the last week of December is not counted yet.",
    )


def run(spark: "SparkSession", bootstrap: str, topic: str, into: dict[str, str], checkpoint: Path) -> int:
    """Run the query over all existing records, and return the number of its batches."""
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    source |= {"maxOffsetsPerTrigger": str(ROWS_A_BATCH)}
    records = spark.readStream.format("conditional-log").options(**source).load()
    flights = records.select(F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight"))
    hours = flights.select(F.to_timestamp("flight.time_hour").alias("hour"), "flight.origin").where(
        "hour IS NOT NULL"
    )
    # The stream reads partitions in parallel, so one may be some days ahead of another.
    counted = hours.withWatermark("hour", "7 days").groupBy(F.window("hour", "1 day"), "origin").count()
    day = F.struct(F.to_date("window.start").alias("day"), F.col("count").alias("departures"))
    rows = counted.select(F.col("origin").alias("key"), F.to_json(day).alias("value"))
    query = (
        route(rows, into)
        .writeStream.format("conditional-log")
        .option("checkpointLocation", str(checkpoint))
        .options(**into)
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not query.awaitTermination(PATIENCE_SECONDS):
            raise RuntimeError(f"the stream has not ended within {PATIENCE_SECONDS} seconds")
        return len(query.recentProgress)
    finally:
        query.stop()


def print_days(records: "DataFrame") -> None:
    """Print the first days of the year, with one column per airport."""
    counted = F.from_json(F.col("value").cast("string"), "day STRING, departures LONG")
    rows = records.select(F.col("key").cast("string").alias("airport"), counted.alias("of")).select("airport", "of.*")
    airports = sorted(row.airport for row in rows.select("airport").distinct().collect())
    by_day: dict[str, dict[str, int]] = {}
    for row in rows.orderBy("day").collect():
        by_day.setdefault(row.day, {})[row.airport] = row.departures
    table = Table("day", *airports)
    for day in [*by_day][:SHOWN]:
        table.add_row(day, *(f"{by_day[day].get(airport, 0):,}" for airport in airports))
    console.print(table)
    say(f"... and {len(by_day) - SHOWN} more days.")
