"""Durations of the log's operations, as one value that a test can replace."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

RETRY_TIMEOUT_MS = 120_000
"""The default retry timeout. It is the default of Kafka's ``delivery.timeout.ms``, and of Spark's sink."""

LONGEST_TRANSACTION_MS = 900_000
"""The default of the brokers' limit for a transaction timeout (transaction.max.timeout.ms). An atomic load may block
other writers for this time, on every backend."""

MILLISECONDS_IN = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
"""The units of a duration in an option, as Spark spells them."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds. Other durations are multiples of these."""

    first_pause: float = 0.02
    """The first pause before a retry. Later pauses double, up to `longest_pause`."""
    longest_pause: float = 1.0
    group_retry_pause: float = 0.5
    """The first pause before all rows of an atomic load are sent again."""
    abort_pause: float = 0.1
    """The pause before a chunk is sent again after an abort. An abort returns before its marker is in the log.
    The marker could land among the records of the next try."""
    unlogged_wait: float = 5.0
    """Shorter waits are not logged."""
    log_interval: float = 30.0
    """The time between two log lines about a wait."""

    poll_pause: float = 0.0005
    """The pause between two checks for an event that is expected within a millisecond, if a check costs nothing. If a
    check sends a request, the pause is a multiple."""
    longest_poll_pause: float = 0.1
    """The longest such pause, and the longest call that serves callbacks of librdkafka. The client splits calls of
    0.2 s or more. It then runs further callbacks after one that reported a fatal error, with that error already
    raised."""
    consumer_poll: float = 0.5
    """The longest wait of a read for its next records."""

    shortest_request: float = 0.1
    """The least timeout of a request, even if the retry timeout is almost over."""
    longest_request: float = 10.0
    """The longest timeout of one request to a broker, and the limit of the last requests of a failed write."""
    overdue: float = 1.0
    """The time after its own timeout in which a call of librdkafka has to return."""
    best_effort: float = 0.5
    """The time for a read that only improves an error message or saves a later request. An open transaction may block
    it for longer."""

    metadata_lag: float = 1.0
    """How long a broker may have stale metadata: a demoted leader, or a broker that does not know a new topic. A
    broker that stalls for a shorter time keeps its leadership."""
    visible: float = 2.0
    """The time in which readers see the end of a transaction that the brokers have acknowledged."""
    fatal_report: float = 0.5
    """The time in which librdkafka reports the fatal error of a producer whose messages it purged."""
    planned_log: float = 5.0
    """The time in which a worker has to see the log that the driver planned with."""

    fresh_age: float = 1.0
    """The age up to which a claim uses cached metadata of its topic."""
    cached_age: float = 60.0
    """The age up to which cached metadata is used, and the longest idle time of a pooled client. It is well below
    ``metadata.max.age.ms``, after which librdkafka discards its own."""
    client_age: float = 300.0
    """The longest age of a pooled client. New clients read secrets and addresses again."""

    partial_hold: float = 1.0
    """How long an append to several partitions blocks the first ones while it waits for another writer."""
    short_transaction: float = 20.0
    """How long a killed writer of a registry entry or a lock blocks the others, in addition to the
    brokers' check interval of 10 s."""
    cancel_check: float = 2.0
    """The time between two checks for the cancellation of a run. A younger run is not checked at all."""
    straggler_age: float = 3600.0
    """The age after which no task of an ended job or of a crashed driver is expected to run."""
    clock_skew: float = 60.0
    """The largest expected difference between two clocks."""


_stack = [Timing()]


def current() -> Timing:
    """Return the durations of this process."""
    return _stack[-1]


@contextmanager
def replaced(**durations: float) -> Iterator[None]:
    """Replace durations in the ``with`` block, for all threads of this process. This is for tests."""
    _stack.append(replace(current(), **durations))
    try:
        yield
    finally:
        _stack.pop()
