"""Resolve the address of the logs of a read or write: a path, or topics of some brokers, but not both."""

from dataclasses import dataclass

from spark_cas.core.check_name import check_name
from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.address import kafka_spec
from spark_cas.log.open import AnySpec, parse_address
from spark_cas.options.selection import Selection
from spark_cas.options.topic_partitions import TopicPartition

_BOTH_WAYS = (
    "For a directory or object store, use load('/data/logs/flights') or save('/data/logs/flights'). For a topic, use "
    "option('kafka.bootstrap.servers', 'host:9092') with option('topic', 'flights')."
)

_IN_SQL = (
    "In SQL, Spark does not pass the options of a table, so add them to each use: SELECT * FROM t WITH "
    "(path='/data/logs/flights'). To write, use INSERT INTO t WITH (path='/data/logs/flights', job='load-1') SELECT "
    "key, value, partition FROM routed. Here t has exactly these columns, and routed is a view of a routed frame. "
    "See docs/spark.md."
)

NO_ADDRESS = f"the options have no address of a log: neither path nor kafka.bootstrap.servers. {_BOTH_WAYS} {_IN_SQL}"


_NO_NAME = "-"
"""The topic name of a spec if a pattern selects the topics."""


@dataclass(frozen=True, slots=True)
class Named:
    """The options that name topics. At most one of them may have a value."""

    topic: str | None
    subscribe: tuple[str, ...] | None
    subscribe_pattern: str | None
    assign: tuple[TopicPartition, ...] | None

    def option_name(self) -> str | None:
        """Return the name of the option that has a value, None if none has; raise OptionError if two have one."""
        options = ("topic", "subscribe", "subscribePattern", "assign")
        values = (self.topic, self.subscribe, self.subscribe_pattern, self.assign)
        settings = [option for option, value in zip(options, values, strict=True) if value is not None]
        if len(settings) > 1:
            raise OptionError(f"the options {' and '.join(settings)} both name topics. Use one of them.")
        return settings[0] if settings else None

    def topics(self) -> tuple[str, ...]:
        """Return the topic names, sorted; empty for a pattern."""
        if self.topic is not None:
            return (self.topic,)
        return self.subscribe or tuple(sorted({at.topic for at in self.assign or ()}))


def selection_of(path: str | None, servers: str | None, named: Named) -> Selection | None:
    """Return the selected logs, without client settings; None if no option names a log.

    Raises:
        OptionError: The options are incomplete or contradict each other.
    """
    option = named.option_name()
    if path is not None:
        return _at_path_of(path, servers, option, named)
    if servers is None:
        if option is not None:
            raise OptionError(f"the option {option} needs the option kafka.bootstrap.servers. {_BOTH_WAYS}")
        return None
    if option is None:
        raise OptionError(
            "the option kafka.bootstrap.servers needs a topic. Add option('topic', 'flights'), or for a read "
            "subscribe, subscribePattern or assign. Only a batch write can use the topics in the column topic of its "
            "DataFrame: pass the options and the DataFrame to spark_cas.route first."
        )
    topics = named.topics()
    specs = [kafka_spec(servers, topic, {}) for topic in topics or (_NO_NAME,)]
    return Selection(specs[0], topics, named.subscribe_pattern, named.assign or ())


def _at_path_of(path: str, servers: str | None, option: str | None, named: Named) -> Selection:
    """Return the log at a path, of which ``assign`` may select some partitions."""
    if option == "subscribePattern":
        raise OptionError(
            "the options path and subscribePattern cannot be combined, because a path is one log. Load each path and "
            "union the DataFrames, or use kafka.bootstrap.servers instead of the path."
        )
    if servers is not None or option not in (None, "assign"):
        other = option if servers is None else "kafka.bootstrap.servers"
        raise OptionError(f"the options path and {other} cannot be combined: each names a log. {_BOTH_WAYS}")
    spec = _at_path(path)
    if named.topics() not in ((), (spec.topic,)):
        raise OptionError(f"option assign names other logs than {spec.topic}, the log at the path. Name only that.")
    return Selection(spec, (spec.topic,), assigned=named.assign or ())


def _at_path(path: str) -> AnySpec:
    spec = parse_address(path)
    if spec.url.lower().startswith("memory:"):
        raise OptionError(
            "a log in memory exists in one process, but Spark's tasks run in others. Use a directory or the URL of "
            "an object store."
        )
    check_name(spec.topic, "the last part of a log's address")
    return spec
