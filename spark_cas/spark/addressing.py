"""Where the log of a read or write is: under a path, or a topic of some brokers, and never both."""

from spark_cas.core.errors import OptionError
from spark_cas.core.names import check_name
from spark_cas.log.kafka.address import kafka_spec
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.open import AnySpec, parse_address
from spark_cas.log.spec import LogSpec

_BOTH_WAYS = (
    "Give the one: load('/data/logs/flights') or save('/data/logs/flights') for a directory or object store. Or the "
    "other: option('kafka.bootstrap.servers', 'host:9092') with option('topic', 'flights') for a topic."
)

_IN_SQL = (
    "In SQL, where a table keeps no options, at each use: SELECT * FROM t WITH (path='/data/logs/flights'), INSERT "
    "INTO t WITH (path='/data/logs/flights', job='load-1') SELECT ..."
)

NO_ADDRESS = (
    f"there is neither path nor kafka.bootstrap.servers, so it is not said where the log is. {_BOTH_WAYS} {_IN_SQL}"
)


def address_of(path: str | None, servers: str | None, topic: str | None, subscribe: str | None) -> AnySpec | None:
    """The log that these four options name, without settings; None when they name none. Raises OptionError."""
    if topic is not None and subscribe is not None:
        raise OptionError("the options topic and subscribe are both given and mean the same. Leave subscribe out.")
    named = topic or subscribe
    if path is not None:
        if servers is not None or named is not None:
            other = "topic" if servers is None else "kafka.bootstrap.servers"
            raise OptionError(f"the options path and {other} are both given, and a log is in one place. {_BOTH_WAYS}")
        return _at_path(path)
    if servers is None:
        if named is not None:
            raise OptionError(f"the option topic is given without kafka.bootstrap.servers. {_BOTH_WAYS}")
        return None
    if named is None:
        raise OptionError(
            "the option kafka.bootstrap.servers is given without topic. Give option('topic', 'flights'). A column "
            "topic does not say it: what a job expects, and how far it came, is kept per topic, so one write goes to "
            "one topic. Write rows for several topics one by one: for each topic filter the frame by the column, "
            "route it, and write it under a job name of its own."
        )
    return kafka_spec(servers, named, {})


def with_settings(
    address: AnySpec,
    settings: dict[str, str],
    *,
    prefix: str,
    claim_timeout_ms: int,
    transaction_timeout_ms: int,
) -> AnySpec:
    """The same log with the settings of its client, and what else a topic needs. Raises OptionError."""
    if isinstance(address, LogSpec):
        return LogSpec(address.url, tuple(sorted(settings.items())))
    return kafka_spec(
        address.bootstrap_servers,
        address.topic,
        settings,
        prefix=prefix,
        claim_timeout_ms=claim_timeout_ms,
        transaction_timeout_ms=transaction_timeout_ms,
    )


def _at_path(path: str) -> AnySpec:
    spec = parse_address(path)
    if isinstance(spec, KafkaSpec):
        return spec
    if spec.scheme == "memory":
        raise OptionError(
            "a log in memory lives in one process, and Spark's tasks run in others. Give a directory or the URL of "
            "an object store."
        )
    check_name(spec.topic, "the last part of a log's address")
    return spec
