"""The accepted client settings except security: Java's name, librdkafka's name, and the clients that use it.

Each row has a true equivalent that limits the same thing, in the same or a converted unit. Ranges are librdkafka's,
so that a client never rejects a checked setting with an error that contains its value. Source: the configuration
pages of Kafka 4 and of librdkafka 2.16.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

_MAX_INT = 2**31 - 1


class Client(Enum):
    """The kinds of client that settings apply to."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


EVERY = frozenset(Client)
_PRODUCER = frozenset({Client.PRODUCER})
_CONSUMER = frozenset({Client.CONSUMER})


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with both of its names."""

    java: str
    rdkafka: str
    convert: Callable[[str], str]
    """Converts a value from Java's form to librdkafka's. Raises ValueError with the expected form, not the value."""
    clients: frozenset[Client] = EVERY


def whole(least: int, most: int) -> Callable[[str], str]:
    """Return a converter that accepts integers in a range, unchanged."""

    def convert(text: str) -> str:
        stripped = text.strip()
        # Check the length first, because Python rejects thousands of digits with an error of its own.
        small = stripped.isascii() and stripped.isdigit() and len(stripped.lstrip("0")) <= len(str(most))
        if not small or not least <= int(stripped) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return str(int(stripped))

    return convert


def _unless_minus_one(convert: Callable[[str], str]) -> Callable[[str], str]:
    """Return a converter that turns Java's -1, for none or the system default, into librdkafka's 0."""

    def converted(text: str) -> str:
        if text.strip() == "-1":
            return "0"
        try:
            return convert(text)
        except ValueError as expected:
            raise ValueError(f"-1 or {expected}") from None

    return converted


def _kilobytes(text: str) -> str:
    most = _MAX_INT * 1024
    return str(-(-int(whole(1, most)(text)) // 1024))


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a converter that accepts any of these words, in any case, and returns it as written here."""
    by_lower = {choice.lower(): choice for choice in choices}

    def convert(text: str) -> str:
        if text.strip().lower() not in by_lower:
            raise ValueError(choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}")
        return by_lower[text.strip().lower()]

    return convert


def text(value: str) -> str:
    """Return a text that is not blank. A NUL is invalid, because it would end the text in C."""
    if not value.strip() or "\0" in value:
        raise ValueError("a text that is not empty, without NUL")
    return value


_BUFFER = _unless_minus_one(whole(1, 100_000_000))
_FLAG = one_of("true", "false")

SETTINGS: tuple[Setting, ...] = (
    # All clients.
    Setting("client.id", "client.id", text),
    Setting("client.rack", "client.rack", text),
    # Java's other value is only for Kerberos, which is rejected.
    Setting("client.dns.lookup", "client.dns.lookup", one_of("use_all_dns_ips")),
    Setting("connections.max.idle.ms", "connections.max.idle.ms", _unless_minus_one(whole(1, _MAX_INT))),
    Setting("enable.metrics.push", "enable.metrics.push", _FLAG),
    # librdkafka's metadata.max.age.ms expires a cache entry after three refreshes. Java's is the refresh interval.
    Setting("metadata.max.age.ms", "topic.metadata.refresh.interval.ms", whole(1, 3_600_000)),
    Setting(
        "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.rebootstrap.trigger.ms", whole(0, _MAX_INT)
    ),
    Setting("metadata.recovery.strategy", "metadata.recovery.strategy", one_of("none", "rebootstrap")),
    Setting("receive.buffer.bytes", "socket.receive.buffer.bytes", _BUFFER),
    Setting("reconnect.backoff.max.ms", "reconnect.backoff.max.ms", whole(0, 3_600_000)),
    Setting("reconnect.backoff.ms", "reconnect.backoff.ms", whole(0, 3_600_000)),
    # librdkafka's request.timeout.ms is how long the broker waits for its replicas.
    Setting("request.timeout.ms", "socket.timeout.ms", whole(10, 300_000)),
    Setting("retry.backoff.max.ms", "retry.backoff.max.ms", whole(1, 300_000)),
    Setting("retry.backoff.ms", "retry.backoff.ms", whole(1, 300_000)),
    Setting("send.buffer.bytes", "socket.send.buffer.bytes", _BUFFER),
    Setting("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.ms", whole(1000, _MAX_INT)),
    # Producers.
    Setting("batch.size", "batch.size", whole(1, _MAX_INT), _PRODUCER),
    Setting("buffer.memory", "queue.buffering.max.kbytes", _kilobytes, _PRODUCER),
    Setting("compression.type", "compression.type", one_of("none", "gzip", "snappy", "lz4", "zstd"), _PRODUCER),
    # Also the retry timeout of all clients (`KafkaSpec.patience_seconds`). 0 would disable it.
    Setting("delivery.timeout.ms", "message.timeout.ms", whole(1, _MAX_INT), _PRODUCER),
    # Brokers keep the order of at most five requests of a producer.
    Setting("max.in.flight.requests.per.connection", "max.in.flight", whole(1, 5), _PRODUCER),
    # Not for consumers, where librdkafka's name is the minimum size of a fetch.
    Setting("max.request.size", "message.max.bytes", whole(1000, 1_000_000_000), _PRODUCER),
    # Consumers.
    Setting("check.crcs", "check.crcs", _FLAG, _CONSUMER),
    # At least the consumer's message.max.bytes, which keeps its default.
    Setting("fetch.max.bytes", "fetch.max.bytes", whole(1_000_000, 2**31 - 513), _CONSUMER),
    Setting("fetch.max.wait.ms", "fetch.wait.max.ms", whole(0, 300_000), _CONSUMER),
    Setting("fetch.min.bytes", "fetch.min.bytes", whole(1, 100_000_000), _CONSUMER),
    Setting("max.partition.fetch.bytes", "max.partition.fetch.bytes", whole(1, 1_000_000_000), _CONSUMER),
)

BY_JAVA_NAME = {setting.java: setting for setting in SETTINGS}
