"""spark-submit jobs/stream_copy.py: copy a log or topic into another as a stream, exactly once. See --help."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_cas.core.errors import ErrorKind, error_from_text
from spark_cas.options.table import ISOLATION_LOAD
from spark_cas.programs.arguments import add_options, checked_options, parser_of
from spark_cas.programs.errors import RAISED, ExitCode, UsageError
from spark_cas.programs.program import Result, StartSession, message_console, print_line, run, submitted_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EPILOG = """\
A log is a directory, a URL such as s3://bucket/logs/flights, or kafka://host:9092/flights. Records keep their key,
value, headers and timestamp. Records of a key in one partition keep their order. A task keeps its part of a batch in
memory, so a batch has at most {most:,} offsets. --from-option maxOffsetsPerTrigger=N changes this limit.
--from-option isolation=load removes it: no batch then ends within an atomic load. A replayed batch keeps its size, so
set these options before the first run.

exit codes: 0 all records are copied; 1 failed, run it again; 2 usage; 3 rejected by a condition; 4 the input changed;
6 the log is missing, damaged or trimmed; 7 a right is missing; 130 interrupted, the same command resumes.
The last line on stdout is the result as JSON.
"""
_MOST_OFFSETS = 1_000_000
_MINIMUM = ("minoffsetspertrigger", "maxtriggerdelay")
_POLL_SECONDS = 1


def parse_arguments(argv: Sequence[str], prog: str) -> argparse.Namespace:
    """Parse a command line. If it is invalid, print usage and exit with 2."""
    description = "Copy a log or topic into another, exactly once. With the same checkpoint, a further run resumes."
    parser = parser_of(prog, description, _EPILOG.format(most=_MOST_OFFSETS))
    for name, log in (("from", "source"), ("to", "target")):
        parser.add_argument(f"--{name}", required=True, metavar="LOG", dest=f"{log}_log", help=f"the {log} log")
        help_text = f"an option of docs/options.md for the {log} log"
        add_options(parser, f"--{name}-option", "NAME=VALUE", help_text)
    parser.add_argument(
        "--checkpoint", required=True, metavar="PATH", help="the folder in which Spark stores the progress"
    )
    parser.add_argument("--job", required=True, help="identity of this copy in the target log")
    parser.add_argument("--partitions", metavar="N", help="partition count of a log that does not exist yet")
    parser.add_argument("--follow", action="store_true", help="continue with new records, until interrupted")
    arguments = parser.parse_args(argv)
    try:
        own = ("job", "partitions", "batchId")
        arguments.source_options = checked_options(arguments.from_option, "--from-option")
        arguments.target_options = checked_options(arguments.to_option, "--to-option", *own)
    except UsageError as error:
        parser.error(str(error))
    return arguments


def main(argv: Sequence[str], prog: str, start_session: StartSession) -> int:
    """Run the program from its command line and return the exit code."""
    return run(_copy, parse_arguments(argv, prog), start_session)


def reading_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the read, with a default limit on the batch size.

    Spark keeps the planned size of a batch, so a later run cannot reduce it.
    """
    # Some versions of pyspark reject a limit without processingTime.
    defaults = {"startingOffsets": "earliest", "includeHeaders": "true", "processingTime": "true"}
    options = {**defaults, **arguments.source_options}
    if not arguments.follow:
        # The copy reads only existing records, so a minimum applies to no batch.
        options = {name: value for name, value in options.items() if name.lower() not in _MINIMUM}
    # An offset limit may split a load, so it does not apply with isolation=load.
    isolation = next((value for name, value in options.items() if name.lower() == "isolation"), "")
    if isolation.strip().lower() == ISOLATION_LOAD:
        return options
    return {"maxOffsetsPerTrigger": str(_MOST_OFFSETS), **options}


def _copy(arguments: argparse.Namespace, spark: "SparkSession") -> tuple[ExitCode, Result]:
    from spark_cas.spark.reading.stream_offsets import stream_lag
    from spark_cas.spark.versions import start_for_existing_records
    from spark_cas.spark.writing.route import route

    writing = {**arguments.target_options, "path": arguments.target_log, "job": arguments.job}
    writing |= {} if arguments.partitions is None else {"partitions": arguments.partitions}

    def append(batch: "DataFrame", number: int) -> None:
        one = {**writing, "batchId": str(number)}
        # Order by offset: records with the same key are in one partition, so their order is kept.
        with plain_lost_timestamps():
            routed = route(require_timestamps(batch), one, order_by=["offset"])
            routed.write.format("conditional-log").mode("append").options(**one).save()

    reading = reading_options(arguments)
    records = spark.readStream.format("conditional-log").options(**reading).load(arguments.source_log)
    writer = records.writeStream.foreachBatch(append).option("checkpointLocation", arguments.checkpoint)
    query, has_read_all = (writer.start(), None) if arguments.follow else start_for_existing_records(writer)
    console = message_console()
    copied, newest = 0, -1
    try:
        ended: bool | None = False
        while not ended:
            ended = query.awaitTermination(_POLL_SECONDS) or (has_read_all is not None and has_read_all())
            for progress in query.recentProgress:
                # On Spark Connect, only the source has the number.
                source = progress["sources"][0]
                if progress["batchId"] > newest and source["numInputRows"]:
                    newest = progress["batchId"]
                    copied += source["numInputRows"]
                    lag = stream_lag(source)
                    lag_text = f", {sum(lag.values()):,} behind" if lag else ""
                    print_line(console, f"batch {newest}: {source['numInputRows']:,} records{lag_text}")
    finally:
        query.stop()
    return ExitCode.COMPLETE, {"status": "copied", "job": arguments.job, "rows": copied}


@contextmanager
def plain_lost_timestamps() -> Iterator[None]:
    """Raise the error of `require_timestamps` as UnreadableRecordError, as Spark raises other errors of this package.

    Only the text at the start of the exception counts, because a record may contain the same text. A cause of the
    new error would precede it in the text of the query's error, where `error_from_text` does not find it.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        text, _, _ = str(error).partition(" SQLSTATE: ")
        plain = error_from_text(text.removeprefix(RAISED)) if text.startswith(RAISED) else None
        if plain is None:
            raise
        raise plain from None


def require_timestamps(records: "DataFrame") -> "DataFrame":
    """Let Spark fail with the text of an UnreadableRecordError if it cannot represent the timestamp of a record.

    Such a timestamp is null in the DataFrame, and the copy would replace it with the current time.
    """
    from pyspark.sql import functions

    message = functions.format_string(
        f"[{ErrorKind.UNREADABLE_RECORD}] partition %d of topic %s: the record at offset %d has a timestamp that "
        f"Spark cannot hold, so the copy would change it. Copy the topic with a query of your own that gives such "
        f'records a timestamp. {{"partition":%d,"offset":%d}}',
        *("partition", "topic", "offset", "partition", "offset"),
    )
    time = functions.col("timestamp")
    lost = time.isNull() & (functions.col("timestampType") >= 0)
    failing = functions.raise_error(message).cast("timestamp")
    return records.withColumn("timestamp", functions.when(lost, failing).otherwise(time))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "stream_copy.py", lambda shown: submitted_session("stream copy", show_log=shown)))
