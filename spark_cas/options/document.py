"""Generate docs/options.md: ``python -m spark_cas.options.document > docs/options.md``."""

import sys

from spark_cas.log.kafka.settings.translate import ALLOWED
from spark_cas.log.kafka.settings.unused import UNUSED, Unused
from spark_cas.log.patience import PATIENCE_MS
from spark_cas.log.spec import RETRY_TIMEOUT
from spark_cas.options.kafka_connector import APPLICATION, COLUMNS, SINK, SOURCE, SparkOption
from spark_cas.options.option import Option, Scope
from spark_cas.options.store_settings import AWS, AZURE, GOOGLE, PREFIX
from spark_cas.options.table import OPTIONS

_HEAD = """# Options

Option names are case-insensitive. An unknown option is an error. One dict can serve a read, `route` and a write:

- A write and `route` ignore the options of reads, except `logId`, which is a condition. A read ignores the options
  of writes.
- `spark.read` ignores `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay`, as Spark's own source
  does. The logger `spark_cas` of Python's logging reports each once.
- `route` and `spark.readStream` ignore `checkpointLocation` and `queryName`, which belong to a streaming query.
- Any other option that does not apply is an error.

An option overrides the defaults of the log in the `conf` file. These override `[defaults]` of the file, and those
override the defaults below. The file can set options with a ✓. This page is generated:
`python -m spark_cas.options.document > docs/options.md`.
"""

_LESS = """Filters on the columns of a read return the correct rows, but the read still fetches all records, with any
value of `spark.sql.python.filterPushdown.enabled`
([why](decisions/0012-one-pyspark-data-source-without-filter-pushdown.md)). To read less, set `assign`, the starting
and ending options, and a schema with only the columns that you need.
"""

_STREAM = "`spark.readStream` takes all of these, except for {}.\nIt also takes the following options.\n"

_ROUTE = """## Routing

`spark_cas.route(df, options)` takes a dict with all options of a write. It uses the address and connection settings
of the log, `partitions`, `partitioner`, `job`, `compare`, `atomic`, `idempotence` and `conf`.
"""

_KAFKA = """## Settings of Kafka's clients

Set each as `kafka.<name>`, with the name of Kafka's Java client, as in Spark's own connector. Set it as an option of
reads and writes, or in the file of per-log defaults. User names, passwords, client ids and secrets may be `env:NAME`
or `file:PATH`, and so may certificates and keys given as text. The driver and each worker resolve such a reference
when they create a client, so Spark never sends the secret. It sends all other values in its plan as they are. These
settings have an effect:
"""

_ONE_PATIENCE = f"""`kafka.delivery.timeout.ms` ({PATIENCE_MS}) is the retry deadline of a write, a read, a plan, a
check of the settings, a commit or a micro-batch, while brokers are slow, restarting, unreachable or without a leader.
It must be above 0, so no operation waits without a limit.

The settings below are accepted without an effect, because they cannot break a guarantee. The logger `spark_cas` of
Python's logging reports each once. Any other setting is rejected, and the error names the alternative.

| setting | values | instead |
| --- | --- | --- |"""

_STORE = f"""## Settings of the object store

Set each as `{PREFIX}<name>`: as an option of reads and writes, or in the file of per-log defaults. The driver and
each worker resolve a value `env:NAME` or `file:NAME` when they open the store, so Spark never sends the secret. It
sends all other values in its plan as they are. Settings that are not listed are rejected.

`{PREFIX}{RETRY_TIMEOUT}`, such as `90s` or `5min`, is the retry deadline of each operation while the store is down,
busy or silent, like `kafka.delivery.timeout.ms` of a topic. The default is `{PATIENCE_MS // 1000}s`. The client
repeats a request that the store has not answered, with all its data, within a quarter of the deadline or 30 s,
whichever is longer. If the deadline is below `30s`, the limit is a quarter. That may be too short to store a large
chunk, so use `30s` or more for writes.
"""


_CONNECTOR = """## Coming from Spark's Kafka connector

The tables compare all options of Spark 4.2's own source and sink. Here an option is the **same**, **different**,
without an effect (**no effect**, logged once), or **refused**. All other `kafka.*` options are client settings,
listed below.
"""


def render() -> str:
    """Return the text of docs/options.md."""
    parts = [
        _HEAD,
        _table("Reading", Scope.READ),
        _LESS,
        _STREAM.format(_names_of_reads_alone()),
        _table("Streaming", Scope.READ_STREAM, but_not=Scope.READ),
        _table("Writing", Scope.WRITE),
        _ROUTE,
        _CONNECTOR,
        _compared("option of the source", SOURCE),
        _compared("option of the sink", SINK),
        _compared("column of the sink", COLUMNS),
        _compared("setting of the application", APPLICATION),
        _KAFKA,
        f"{', '.join(f'`{name}`' for name in sorted(ALLOWED))}\n",
        _ONE_PATIENCE,
        *(_taken(each) for each in UNUSED),
        "",
        _STORE,
        f"- any: `allow_http`, `{RETRY_TIMEOUT}`",
        f"- S3: {_names(AWS, 'aws_')}",
        f"- Azure: {_names(AZURE, 'azure_')}",
        f"- Google: {_names(GOOGLE, 'google_')}",
    ]
    return "\n".join(parts) + "\n"


def _table(title: str, scope: Scope, *, but_not: Scope | None = None) -> str:
    rows = [_row(option) for option in OPTIONS if scope in option.scopes and but_not not in option.scopes]
    return "\n".join(
        [f"## {title}\n", "| option | default | per log | meaning |", "| --- | --- | --- | --- |", *rows, ""]
    )


def _names_of_reads_alone() -> str:
    *others, last = (
        f"`{option.name}`"
        for option in OPTIONS
        if Scope.READ in option.scopes and Scope.READ_STREAM not in option.scopes
    )
    return f"{', '.join(others)} and {last}"


def _compared(title: str, options: tuple[SparkOption, ...]) -> str:
    rows = [f"| `{each.name}` | {each.verdict.value} | {each.note} |" for each in options]
    return "\n".join([f"| {title} | here | |", "| --- | --- | --- |", *rows, ""])


def _row(option: Option) -> str:
    default = f"`{option.default}`" if option.default else ""
    return f"| `{option.name}` | {default} | {'✓' if option.per_log else ''} | {option.doc} |"


def _taken(unused: Unused) -> str:
    names, values = (", ".join(f"`{each}`" for each in some) for some in (unused.names, unused.values))
    return f"| {names} | {values or 'any'} | {unused.instead} |"


def _names(names: frozenset[str], prefix: str) -> str:
    listed = ", ".join(f"`{name}`" for name in sorted(names) if name.startswith(prefix))
    return f"{listed}; each also without `{prefix}`" + (" or `azure_storage_`" if prefix == "azure_" else "")


if __name__ == "__main__":
    sys.stdout.write(render())
