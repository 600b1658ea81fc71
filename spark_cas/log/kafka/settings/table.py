"""The client settings that may be given, but for security: Java's name, librdkafka's, and who takes it.

Each row has a true equivalent: the same thing is limited, in the same or a converted unit. Ranges are those of
librdkafka, so that a client made from checked settings never refuses one, with its value in the error.
Source: the configuration pages of Kafka 4 and of librdkafka 2.16.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

_MAX_INT = 2**31 - 1
_HOUR_MS = 3_600_000


class Client(Enum):
    """The kinds of client that settings are chosen for."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


EVERY = frozenset(Client)
_PRODUCER = frozenset({Client.PRODUCER})
_CONSUMER = frozenset({Client.CONSUMER})


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting under both of its names."""

    java: str
    rdkafka: str
    convert: Callable[[str], str]
    """From the value as Java takes it to librdkafka's. Raises ValueError saying what was expected, never a value."""
    clients: frozenset[Client] = EVERY


def whole(least: int, most: int) -> Callable[[str], str]:
    """A converter that takes whole numbers in a range and leaves them as they are."""

    def convert(text: str) -> str:
        stripped = text.strip()
        # The length first: Python refuses to read thousands of digits, with an error of its own.
        small = stripped.isascii() and stripped.isdigit() and len(stripped.lstrip("0")) <= len(str(most))
        if not small or not least <= int(stripped) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return str(int(stripped))

    return convert


def _unless_minus_one(convert: Callable[[str], str]) -> Callable[[str], str]:
    """Java's -1, for none or the system's own, is librdkafka's 0."""

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
    """A converter that takes one of a few words in any case and gives it as written here."""
    by_lower = {choice.lower(): choice for choice in choices}

    def convert(text: str) -> str:
        if text.strip().lower() not in by_lower:
            raise ValueError(choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}")
        return by_lower[text.strip().lower()]

    return convert


def text(value: str) -> str:
    """Any text that is not blank. It goes to C, where a NUL would end it."""
    if not value.strip() or "\0" in value:
        raise ValueError("a text that is not empty, without NUL")
    return value


_BUFFER = _unless_minus_one(whole(1, 100_000_000))
_FLAG = one_of("true", "false")

SETTINGS: tuple[Setting, ...] = (
    # Every client.
    Setting("client.id", "client.id", text),
    Setting("client.rack", "client.rack", text),
    # Java's other value is for Kerberos alone, which is refused.
    Setting("client.dns.lookup", "client.dns.lookup", one_of("use_all_dns_ips")),
    Setting("connections.max.idle.ms", "connections.max.idle.ms", _unless_minus_one(whole(1, _MAX_INT))),
    Setting("enable.metrics.push", "enable.metrics.push", _FLAG),
    # librdkafka's own metadata.max.age.ms is when a cache entry dies, three refreshes later; Java's is the refresh.
    Setting("metadata.max.age.ms", "topic.metadata.refresh.interval.ms", whole(1, _HOUR_MS)),
    Setting(
        "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.rebootstrap.trigger.ms", whole(0, _MAX_INT)
    ),
    Setting("metadata.recovery.strategy", "metadata.recovery.strategy", one_of("none", "rebootstrap")),
    Setting("receive.buffer.bytes", "socket.receive.buffer.bytes", _BUFFER),
    Setting("reconnect.backoff.max.ms", "reconnect.backoff.max.ms", whole(0, _HOUR_MS)),
    Setting("reconnect.backoff.ms", "reconnect.backoff.ms", whole(0, _HOUR_MS)),
    # What librdkafka calls request.timeout.ms is how long the broker waits for its replicas.
    Setting("request.timeout.ms", "socket.timeout.ms", whole(10, 300_000)),
    Setting("retry.backoff.max.ms", "retry.backoff.max.ms", whole(1, 300_000)),
    Setting("retry.backoff.ms", "retry.backoff.ms", whole(1, 300_000)),
    Setting("send.buffer.bytes", "socket.send.buffer.bytes", _BUFFER),
    Setting("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.ms", whole(1000, _MAX_INT)),
    # Producers.
    Setting("batch.size", "batch.size", whole(1, _MAX_INT), _PRODUCER),
    Setting("buffer.memory", "queue.buffering.max.kbytes", _kilobytes, _PRODUCER),
    Setting("compression.type", "compression.type", one_of("none", "gzip", "snappy", "lz4", "zstd"), _PRODUCER),
    # Of all clients it says how long they go on (`KafkaSpec.patience_seconds`). 0 would be without end.
    Setting("delivery.timeout.ms", "message.timeout.ms", whole(1, _MAX_INT), _PRODUCER),
    # A consumer would take librdkafka's name too, as the least that it fetches.
    Setting("max.request.size", "message.max.bytes", whole(1000, 1_000_000_000), _PRODUCER),
    # Consumers.
    Setting("check.crcs", "check.crcs", _FLAG, _CONSUMER),
    # Not below the consumer's message.max.bytes, which stays at its default.
    Setting("fetch.max.bytes", "fetch.max.bytes", whole(1_000_000, 2**31 - 513), _CONSUMER),
    Setting("fetch.max.wait.ms", "fetch.wait.max.ms", whole(0, 300_000), _CONSUMER),
    Setting("fetch.min.bytes", "fetch.min.bytes", whole(1, 100_000_000), _CONSUMER),
    Setting("max.partition.fetch.bytes", "max.partition.fetch.bytes", whole(1, 1_000_000_000), _CONSUMER),
)

BY_JAVA_NAME = {setting.java: setting for setting in SETTINGS}
