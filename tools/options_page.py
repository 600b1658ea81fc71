"""Generate docs/options.md: ``python -m tools.options_page > docs/options.md``."""

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from spark_cas.log.kafka.settings.translate import ALLOWED
from spark_cas.log.spec import RETRY_TIMEOUT
from spark_cas.log.timing import RETRY_TIMEOUT_MS as _RETRY_MS
from spark_cas.log.timing import Timing
from spark_cas.options.option_values import AWS, AZURE, GOOGLE, STORE
from spark_cas.options.table import OPTIONS, Option, Scope
from tools.kafka_connector import APPLICATION, COLUMNS, SINK, SOURCE, SparkOption, Verdict

MEANINGS = tomllib.loads(Path(__file__).with_name("options.toml").read_text(encoding="utf-8"))
_REQUEST_MS = int(1000 * Timing().longest_request)

_HEAD = """# Options

Set options on a read or a write, under case-insensitive names:

    options = {"path": "/data/logs/flights", "job": "flights-2013", "partitions": 4}
    route(df, options).write.format("conditional-log").mode("append").options(**options).save()
    spark.read.format("conditional-log").options(**options, startingOffsets="earliest").load()

A read ignores the options of writes, and a write those of reads. `spark.read` ignores limits of micro-batches, with
a warning. Any other option that does not apply is an error, except `checkpointLocation` and `queryName` of a stream.
If a name ends in `Ms`, the unit is milliseconds.

Options with a ✓ can also be in a TOML file of defaults ([example](../conf/conditional-log.toml)), for one log in
`[logs."<path or name>"]`, which overrides `[defaults]`. An option overrides both. A read of several topics uses only
`[defaults]`. Only the driver reads the file.
"""

_FILTERS = """Filters on columns do not reduce the data that a read fetches
([why](decisions/0012-one-pyspark-data-source-without-filter-pushdown.md)). Use `assign`, the starting and ending
options, and a schema with fewer columns.
"""

_STREAM = "A stream does not accept {}.\n"

_CONNECTOR = """## Coming from Spark's Kafka connector

All options of Spark 4.2's source and sink. For other `kafka.*` options see [below](#settings-of-kafkas-clients).
"""

_KAFKA = """## Settings of Kafka's clients

Set `kafka.<name>`, with a name of Kafka's Java client, as an option or in the file of defaults. Give secrets as
[references](spark.md#secrets). User names, client ids, certificates and keys can be references too. These settings
have an effect:
"""

_DEADLINE = f"""`kafka.delivery.timeout.ms` (default {_RETRY_MS}) is the [retry deadline](reliability.md#retries) of
each operation. It must be above 0. A `kafka.request.timeout.ms` above {_REQUEST_MS} counts as {_REQUEST_MS}.

A read or write ignores settings whose effect is fixed, such as `acks=all`, `linger.ms`, and those of consumer groups
and of Java's metrics and TLS. For each, it logs the fixed behavior once. It rejects all other settings and values,
and the error names the alternative.
"""

_STORE = f"""## Settings of the object store

Set `{STORE}<name>` as an option or in the file of defaults. Any value may be a reference, as above:
"""

_STORE_DEADLINE = f"""`{STORE}{RETRY_TIMEOUT}`, such as `90s` or `5min`, is the [retry
deadline](reliability.md#retries) of each operation (default `{_RETRY_MS // 1000}s`).
For writes, use `30s` or more."""


def render() -> str:
    """Return the text of docs/options.md."""
    parts = [
        _HEAD,
        _table("Reads and writes", _of(Scope.READ, Scope.WRITE)),
        _table("Reads", _of(Scope.READ, but_not=Scope.WRITE)),
        _FILTERS,
        _table("Streaming reads", _of(Scope.READ_STREAM, but_not=Scope.READ)),
        _STREAM.format(_names_of(_of(Scope.READ, but_not=Scope.READ_STREAM))),
        _table("Writes", _of(Scope.WRITE, but_not=Scope.READ)),
        _CONNECTOR,
        _compared("Source", SOURCE),
        _compared("Sink", SINK),
        _compared("Columns of the sink", COLUMNS),
        _section("Settings of the application without effect", _notes(APPLICATION)),
        _KAFKA,
        f"{', '.join(f'`{name}`' for name in sorted(ALLOWED))}\n",
        _DEADLINE,
        _STORE,
        f"- any: `allow_http`, `{RETRY_TIMEOUT}`",
        f"- S3: {_names(AWS, 'aws_')}",
        f"- Azure: {_names(AZURE, 'azure_')}",
        f"- Google: {_names(GOOGLE, 'google_')}\n",
        _STORE_DEADLINE,
    ]
    return "\n".join(parts) + "\n"


def _of(*scopes: Scope, but_not: Scope | None = None) -> list[Option]:
    documented = [each for each in OPTIONS if not each.internal]
    return [each for each in documented if each.scopes.issuperset(scopes) and but_not not in each.scopes]


def _table(title: str, options: list[Option]) -> str:
    return "\n".join(
        [f"## {title}\n", "| option | default | meaning |", "| --- | --- | --- |", *map(_row, options), ""]
    )


def _row(option: Option) -> str:
    default = f"`{option.default}`" if option.default else ""
    return f"| `{option.name}`{' ✓' if option.per_log else ''} | {default} | {MEANINGS[option.name]} |"


def _names_of(options: list[Option]) -> str:
    *others, last = (f"`{option.name}`" for option in options)
    return f"{', '.join(others)} and {last}"


def _compared(title: str, options: tuple[SparkOption, ...]) -> str:
    """Return a section with the differences, and then the names of the other options."""
    by_verdict = {verdict: [each for each in options if each.verdict is verdict] for verdict in Verdict}
    different = by_verdict.pop(Verdict.DIFFERENT)
    names = {verdict: ", ".join(f"`{each.text}`" for each in alike) for verdict, alike in by_verdict.items() if alike}
    return _section(title, [*_notes(different), *(f"{verdict.value}: {listed}" for verdict, listed in names.items())])


def _section(title: str, items: list[str]) -> str:
    return "\n".join([f"### {title}\n", *(f"- {each}" for each in items), ""])


def _notes(options: Iterable[SparkOption]) -> list[str]:
    """Return one item for all options that have the same note."""
    names: dict[str, list[str]] = {}
    for each in options:
        names.setdefault(each.note, []).append(f"`{each.name}`")
    return [f"{', '.join(alike)}: {note}" for note, alike in names.items()]


def _names(names: frozenset[str], prefix: str) -> str:
    listed = ", ".join(f"`{name}`" for name in sorted(names) if name.startswith(prefix))
    return f"{listed}; each also without `{prefix}`" + (" or `azure_storage_`" if prefix == "azure_" else "")


if __name__ == "__main__":
    sys.stdout.write(render())
