"""The state step of the demonstrations: the state of the log as a table and as a plot."""

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from rich.table import Table

from jobs.demo_steps import console, say, title
from spark_cas import bootstrap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AIRCRAFT = ("N14228", "N24211", "N619AA", "N725MQ")
FLIGHT = "time_hour STRING, origin STRING, dest STRING"


def show_state(spark: "SparkSession", log: str, picture: Path) -> None:
    """Show the latest flight of each aircraft, the expected offsets of the next write, and a plot of the year."""
    title("4. Read the state", "the latest flight of each aircraft, and the expected offsets of the next write")
    found = bootstrap(spark, log)
    flight = F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight")
    state = found.state.select(F.col("key").cast("string").alias("aircraft"), flight, "partition", "offset")
    state = state.where("flight.time_hour IS NOT NULL").cache()
    print_state(state)
    say(
        f"These and {state.count() - len(AIRCRAFT):,} more are the state of the log below these end offsets. A write",
        "that depends on the state expects the same offsets. It is rejected if another writer appended first:",
        found.expected_offsets,
    )
    state.unpersist()
    plot_activity(found.records.select(flight).where("flight.time_hour IS NOT NULL"), picture)
    say(f"Plot of the year: {picture}")


def print_state(state: "DataFrame") -> None:
    """Print a part of the state, one row per aircraft."""
    table = Table("aircraft", "latest flight", "from", "to", "partition", "offset")
    shown = state.where(F.col("aircraft").isin(*AIRCRAFT)).orderBy("aircraft")
    for row in shown.select("aircraft", "flight.*", "partition", "offset").collect():
        table.add_row(*(str(cell) for cell in row))
    console.print(table)


def plot_activity(flights: "DataFrame", picture: Path) -> None:
    """Plot the departures per day from each airport into a file."""
    day = F.to_date(F.substring("flight.time_hour", 1, 10)).alias("day")
    counted = flights.groupBy(day, "flight.origin").count().orderBy("day").collect()
    departures = pd.DataFrame(counted, columns=["day", "airport", "departures"])
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    for airport, days in departures.groupby("airport"):
        axes.plot(days["day"], days["departures"].rolling(7, min_periods=1).mean(), label=airport)
    axes.set_title("Departures per day from New York in 2013, mean of seven days")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)
