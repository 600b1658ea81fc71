"""Writes docs/options.md: ``python -m spark_cas.options.document > docs/options.md``."""

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

Made by `python -m spark_cas.options.document > docs/options.md`. Names do not depend on case. An option that is
not listed is an error, and so is one that is given where it has no meaning. Options win over the defaults of the
log in the file that `conf` names, those over the file's `[defaults]`, and those over the defaults below; a ✓ says
that the file may set the option.
"""

_LESS = """Filters on the columns of a read are right, and prune nothing, whatever
`spark.sql.python.filterPushdown.enabled` says ([why](decisions/0008-filters-do-not-prune.md)). To read less, give
`assign`, the starting and ending options, and a schema of only the columns that are needed.
"""

_STREAM = """`spark.readStream` takes all of these but `endingOffsets`, `endingTimestamp`, `endingOffsetsByTimestamp`
and `view`, and takes the following too.
"""

_ROUTE = """## Routing

`spark_cas.route(df, options)` takes a dict of all the options of a write, and uses those that say where the log is
and how it is reached, `partitions` and `conf`.
"""

_KAFKA = """## Settings of Kafka's clients

Each is given as `kafka.<name>` under the name of Kafka's Java client, as Spark's own connector takes it, to reads
and writes alike, or in the file of per-log defaults. Passwords, and certificates and keys given as text, may be
`env:NAME` or `file:PATH`: these are resolved where a client is made, on driver and workers, and so never travel;
anything else travels with the plan as it is. These have an effect:
"""

_ONE_PATIENCE = f"""`kafka.delivery.timeout.ms` ({PATIENCE_MS}) is the one patience:
how long a write, a read, a plan, a look at the settings, a commit or a micro-batch goes on against brokers that are
slow, restarting, electing or not to be reached, before it fails. It is above 0: nothing waits for ever.

These are taken and have no effect, which the log (`spark_cas`, of Python's logging) tells once: nothing that they
ask for could break a promise. Any other setting is refused, with what to use instead.

| setting | values | what holds in its place |
| --- | --- | --- |"""

_STORE = f"""## Settings of the object store

Each is given as `{PREFIX}<name>`, to reads and writes alike, or in the file of per-log defaults. A value
`env:NAME` or `file:NAME` is resolved where the store is opened, on driver and workers, and so never travels;
anything else travels with the plan as it is. Settings that are not listed may not be set.

`{PREFIX}{RETRY_TIMEOUT}`, `{PATIENCE_MS // 1000}s` unless given (as `90s` or `5min`), says how long anything goes on
against a store that is down, busy or silent: what `kafka.delivery.timeout.ms` is for a topic. A request, with all
that it carries, that is not answered within a quarter of it, but at least 30 s, is made again. Below `30s` it is a
quarter alone, which may be too short for putting a large chunk: give `30s` or more to what writes.
"""


_CONNECTOR = """## Coming from Spark's Kafka connector

Each option of Spark 4.2's own source and sink, and what becomes of it here: the **same**; **different**, and how;
taken with **no effect**, which the log tells once, and what holds in its place; or **refused**, and what to do. All
its other `kafka.*` options are settings of clients: the lists below.
"""


def render() -> str:
    """The page."""
    parts = [
        _HEAD,
        _table("Reading", Scope.READ),
        _LESS,
        _STREAM,
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
