"""Command line of the bulk load, for `spark-submit jobs/bulk_load.py` and `spark-cas load`."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_cas.log.load.planning import fresh_job_name
from spark_cas.options import report_file
from spark_cas.options.option import ATOMIC_LOAD, ATOMIC_PARTITION
from spark_cas.programs.errors import UsageError
from spark_cas.programs.load_request import ALL_FORMATS, QUERY, ROWS_ARE_VALUES, LoadRequest, guess_format
from spark_cas.programs.log_argument import Group, add_log_arguments, log_address, name_and_value, options_beside
from spark_cas.programs.program import add_traceback

_LIMITS = ("maxRecordsPerChunk", "maxBytesPerChunk", "maxSecondsPerChunk")

_EPILOG = """\
exit codes: 0 complete, also when there was nothing left to do; 1 failed, run it again; 2 usage;
3 refused by a condition; 4 the input changed; 5 the job has other rows than its files; 130 interrupted, the same
command resumes.
A load that is not exactly once (option idempotence) does not resume: run again, it appends all rows again.
The last line on stdout is the result as JSON.
"""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A parsed command line."""

    request: LoadRequest
    report: str | None
    with_traceback: bool


def parse_arguments(argv: Sequence[str], prog: str) -> Arguments:
    """Parse a command line. If it is invalid, print usage and exit with 2."""
    parser = _parser(prog)
    given = parser.parse_args(argv)
    if given.report is not None and not report_file.may_be_put(given.report):
        parser.error(
            "--report names no file that can be written: name one in a folder that is there and may be written"
        )
    try:
        return _arguments(given)
    except UsageError as error:
        parser.error(str(error))


def _arguments(given: argparse.Namespace) -> Arguments:
    plain = {"partitions": given.partitions, "expectedOffsets": given.expected_offsets, "atomic": given.atomic}
    plain |= {name: getattr(given, name) for name in _LIMITS}
    said = {name: value for name, value in plain.items() if value is not None}
    options = options_beside(given.log_option, "--log-option", "job", *said) | said
    request = LoadRequest(
        **rows_of(given),
        log=log_address(given.log, given.bootstrap_servers, given.topic),
        job=given.job if given.job is not None else fresh_job_name(),
        log_options=tuple(options.items()),
        verify=given.verify,
        job_is_fresh=given.job is None,
        tombstones=given.tombstones,
        allow_empty=given.allow_empty,
    )
    return Arguments(request, given.report, given.traceback)


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Append files to a log exactly once. Run again with the same --job, it resumes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_input(parser.add_argument_group("input"))
    add_rows(parser.add_argument_group("rows"))
    _add_log(parser.add_argument_group("log"))
    _add_run(parser.add_argument_group("run"))
    return parser


def rows_of(given: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a `LoadRequest` that `add_input` and `add_rows` parse. Raises UsageError."""
    inputs = tuple(given.input or ())
    if given.query is not None:
        if given.format or given.schema or given.read_option:
            raise UsageError("--query takes no --format, --schema or --read-option: these describe files")
        formatted = QUERY
    else:
        formatted = given.format or guess_format(inputs)
    if given.value is None and not given.value_json and formatted not in ROWS_ARE_VALUES:
        raise UsageError("one of the arguments --value --value-json is required")
    if given.schema is not None and formatted not in ("csv", "json"):
        raise UsageError(f"--schema is for csv and json: {formatted} input has its own types")
    if given.value_json and formatted in ROWS_ARE_VALUES:
        raise UsageError(f"--value-json is for rows with columns, and --format {formatted} has one value per row")
    return {
        "inputs": inputs,
        "format": formatted,
        "key": given.key,
        "value": given.value,
        "order_by": tuple(given.order_by),
        "schema": given.schema,
        "read_options": tuple(given.read_option),
        "query": given.query,
        "headers": tuple(given.header),
        "timestamp": given.timestamp,
    }


def add_input(group: Group) -> None:
    """Add the arguments that name the input and its format."""
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--input",
        nargs="+",
        action="extend",
        metavar="PATH",
        help="files, folders or patterns; a folder is read recursively without names that begin with _ or .",
    )
    source.add_argument("--query", metavar="SQL", help="load the rows of a query in place of files")
    group.add_argument("--format", choices=ALL_FORMATS, help="default: by the suffix of --input")
    group.add_argument("--schema", metavar="DDL", help="columns of csv or json, such as 'id BIGINT, name STRING'")
    group.add_argument(
        "--read-option",
        type=name_and_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the reader, such as sep=; (docs/loading.md lists them)",
    )


def add_rows(group: Group) -> None:
    """Add the arguments that define the records."""
    group.add_argument(
        "--key",
        metavar="SQL",
        help="the key as a SQL expression, string or binary; for json also a path such as $.id; default: no key",
    )
    value = group.add_mutually_exclusive_group()
    value.add_argument(
        "--value",
        metavar="SQL",
        help="the value as a SQL expression, string or binary; default for text and binary: the line or file",
    )
    value.add_argument(
        "--value-json", action="store_true", help="the value is the row as JSON; for json the document as it is"
    )
    group.add_argument(
        "--header",
        type=name_and_value,
        action="append",
        default=[],
        metavar="NAME=SQL",
        help="a header of each record, string or binary; repeat for more",
    )
    group.add_argument("--timestamp", metavar="SQL", help="the timestamp of each record; default: set by the log")
    group.add_argument(
        "--order-by",
        action="append",
        default=[],
        metavar="SQL",
        help="order of the rows in a partition, may end in DESC; repeat for more (then by position in the input)",
    )


def _add_log(group: Group) -> None:
    add_log_arguments(group)
    group.add_argument("--job", help="identity of this load: the same job again resumes it")
    group.add_argument("--partitions", metavar="N", help="partition count of a log that does not exist yet")
    group.add_argument(
        "--expected-offsets",
        metavar="OFFSETS",
        help='what each partition is expected to end at: end (the default), none, or JSON such as {"0": 17}',
    )
    group.add_argument(
        "--atomic",
        choices=[ATOMIC_LOAD, ATOMIC_PARTITION],
        help="what becomes visible in one step, or is refused as a whole: all rows, or those of each partition",
    )
    for name in _LIMITS:
        flag = "--" + "".join(f"-{each.lower()}" if each.isupper() else each for each in name)
        group.add_argument(flag, dest=name, metavar="N", help=f"as the option {name}")


def _add_run(group: Group) -> None:
    group.add_argument("--report", metavar="FILE", help="write the JSON result to a file as well")
    group.add_argument("--verify", action="store_true", help="compare the rows of a complete job with the input")
    group.add_argument("--tombstones", action="store_true", help="allow null values, which delete their keys")
    group.add_argument("--allow-empty", action="store_true", help="complete the job if the input has no rows")
    add_traceback(group)
