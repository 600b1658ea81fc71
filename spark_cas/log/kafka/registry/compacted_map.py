"""A partition of a compacted topic as a put-if-absent map: the first record of a key counts, until a tombstone.

A writer takes a ticket: it appends its records in an open transaction, and so reserves their offsets. It waits until
all transactions at lower offsets have ended, and reads their records. It commits only if its own records are still
valid then. So of two writers of a key, the one at the higher offset sees the outcome of the other. A key never has
two committed records, and compaction can only keep the valid one. Writers do not fence each other for this, so many
can write at once.
"""

import logging
import re
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count, takewhile

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.errors import FormatError, LogNotFoundError, RecordTooLargeError, StorageError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.records import records_of_bytes
from spark_cas.log import clock, timing
from spark_cas.log.deadline import Wait, within
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import (
    Meaning,
    NotAvailableError,
    meaning_of,
    on_topic,
    plain_error,
    reason_of,
    to_claim,
)
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.kept_clients import Readers
from spark_cas.log.kafka.client.sending import produce
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.offsets.end_offsets import proven_bounds
from spark_cas.log.kafka.offsets.reading import read_entries
from spark_cas.log.kafka.topic.topics import require_coordinators

_TICKET_SHARE = 0.75
"""The share of the transaction timeout in which a writer waits for the transactions before its own."""

_PLAIN_BYTES = 1_000
"""The writer compresses a longer value. A completion shrinks to an eighth."""
_PIECE_BYTES = 250_000
"""The writer splits a longer value into several records. ``max.message.bytes`` is seldom less than this."""
MOST_TEXT_BYTES = 256 * 1024 * 1024
"""The largest entry before compression: the completion of half a million partitions. It limits the memory of readers,
because a compressed value may grow to a thousand times its size."""
_DEFLATED = b"x"
"""The first byte of zlib's format, and of no JSON text."""
_IN_PIECES = re.compile(rb'\{"pieces":([0-9]+)\}')
_KEY = re.compile(
    r"registry|[^/]+/(?:plan|completion|outcome|input|cancelled|piece|expansion|layout|partitioner)/.+", re.DOTALL
)

_LOG = logging.getLogger("spark_cas")


@dataclass(frozen=True, slots=True)
class Entry:
    """The valid record of a key."""

    value: bytes
    offset: int


Records = list[tuple[str, bytes | None]]
"""Keys and values to append; None is a tombstone."""


class Entries:
    """The entries of one partition. The first read fetches all of them, later ones only the new records."""

    def __init__(self, readers: Readers, admin: Admin, topic: str, partition: int) -> None:
        spec = readers.spec
        self._spec = replace(spec.with_short_transaction(), topic=topic)
        self._readers = readers
        self._admin = admin
        self.at = TopicPartition(topic, partition)
        self._held: dict[str, Entry] = {}
        self.read_to = 0
        """The offset below which all records are read."""

    @property
    def held(self) -> Mapping[str, Entry]:
        """All entries as of the last `refresh`."""
        return self._held

    def refresh(self) -> "Entries":
        """Read all entries recorded before this call, none if there is no topic. Raises StorageError."""
        return refreshed(self._admin, [self], self._spec.patience_seconds)[0]

    def prove(self) -> None:
        """Read as `refresh` does, up to proven bounds. Raises StorageError."""
        self.take_in(proven_bounds(self._admin, self._spec, self.at, self._spec.id_of_registry_write()))

    def forget(self) -> None:
        """Drop all entries, because the topic does not exist or was deleted."""
        self._held.clear()
        self.read_to = 0

    def text(self, key: str) -> str | None:
        """Return the value of an entry as of the last `refresh`, None if there is none. Raises FormatError."""
        entry = self._held.get(key)
        if entry is None:
            return None
        try:
            pieces = _IN_PIECES.fullmatch(entry.value)
            data = entry.value
            if pieces is not None:
                data = b"".join(self._held[_piece(key, number)].value for number in range(int(pieces[1])))
            return (inflate(data, MOST_TEXT_BYTES) if data[:1] == _DEFLATED else data).decode()
        except (KeyError, ValueError, zlib.error):
            raise FormatError(
                f"the entry {key!r} at offset {entry.offset} of partition {self.at.partition} of topic "
                f"{self.at.topic} is not in the format of this spark_cas. Either a newer version or another "
                f"program wrote it."
            ) from None

    def texts(self, prefix: str) -> list[str]:
        """Return the values of the entries whose keys begin with ``prefix``, as `text` does. Raises FormatError."""
        values = [self.text(key) for key in list(self._held) if key.startswith(prefix)]
        return [each for each in values if each is not None]

    def put(self, key: str, records: Records) -> None:
        """Record an entry, given as its `records_of`, unless there is one. In that case `held` has the existing one.

        Raises StorageError.
        """
        self._write(lambda: [] if key in self._held else records)

    def remove(self, keys: Iterable[str]) -> None:
        gone = list(keys)
        self._write(lambda: [(each, None) for key in gone for each in self._keys_of(key)])

    def _keys_of(self, key: str) -> list[str]:
        """Return the keys of an entry's records, none if there is no entry."""
        if key not in self._held:
            return []
        pieces = (_piece(key, number) for number in count())
        return [key, *takewhile(self._held.__contains__, pieces)]

    def _write(self, change: Callable[[], Records]) -> None:
        """Append the records that ``change`` makes of the entries, atomically. Retry until they are valid there."""
        doing = f"writing to the registry topic {self.at.topic}"
        wait = Wait(self._spec.patience_seconds, doing)
        while True:
            try:
                with within(wait.left, extensible=True):
                    if self._try(change):
                        return
                why = "other programs are writing to it, and one of them is not done"
            except KafkaException as error:
                if meaning_of(error.args[0].code()) is Meaning.REFUSED:
                    rights = (on_topic("Write", self.at.topic), *to_claim(self._spec))
                    raise plain_error(error, doing, *rights) from None
                why = reason_of(error.args[0].code())
            except NotAvailableError:
                raise
            except (StorageError, LogNotFoundError) as error:
                why = error.message
            if not wait.again(why):
                raise StorageError(
                    f"{doing}: it did not take an entry within {wait.waited:.0f} s ({why}). Check that the brokers "
                    f"are well, then run the same job again."
                )

    def _try(self, change: Callable[[], Records]) -> bool:
        """Make one attempt. Return False if nothing of it is visible and a retry may succeed."""
        self.take_in(end_offsets.barrier(self._admin, self.at, self._spec.request_seconds))
        if not change():
            return True
        require_coordinators(self._admin)
        producer = TransactionalProducer(self._spec, self._spec.id_of_registry_write())
        try:
            producer.init(self._spec.request_seconds)
            # While the client connected, other writers may have finished.
            self.take_in(end_offsets.stable_bounds(self._admin, self.at))
            records = change()
            if not records:
                return True
            producer.begin()
            right = False
            try:
                table = records_of_bytes([key.encode() for key, _ in records], [value for _, value in records])
                delivered = produce(producer, self.at, table, clock.now_ms(), self._spec.request_seconds)
                first = None if delivered is None or delivered.range is None else delivered.range.base_offset
                right = first is not None and self._right_at(first, records, change)
            finally:
                if not right:
                    producer.abort()  # after any failure, so that others do not wait for the transaction's timeout
            if not right:
                return False
            producer.commit()
        finally:
            producer.close()
        return True

    def _right_at(self, first: int, records: Records, change: Callable[[], Records]) -> bool:
        """Return whether records are still valid, after all transactions at lower offsets have ended and are read.

        Return False also if that takes too long.
        """
        durations = timing.current()
        deadline = time.monotonic() + _TICKET_SHARE * durations.short_transaction
        pause = 4 * durations.poll_pause
        while self.read_to < first:
            decided = min(first, end_offsets.last_stable_offset(self._admin, self.at))
            if decided > self.read_to:
                self.take_in(Bounds(0, decided))
                if change() != records:
                    return False
            elif time.monotonic() > deadline:
                return False
            else:
                time.sleep(pause)
                pause = min(durations.longest_poll_pause, 2 * pause)
        return True

    def take_in(self, bounds: Bounds) -> None:
        """Read the new records below the end of the bounds."""
        new = OffsetRange(max(self.read_to, bounds.start_offset), max(self.read_to, bounds.end_offset))
        for offset, key, value in read_entries(self._readers, self.at, new):
            self._take(offset, key, value)
        self.read_to = new.end_offset

    def _take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        name = _name(key)
        if name is None:
            _LOG.warning(
                "the record at offset %d of partition %d of topic %s is no entry of the registry and is passed over: "
                "another program writes to the topic, or a newer version of spark_cas.",
                offset,
                self.at.partition,
                self.at.topic,
            )
        elif value is None:
            self._held.pop(name, None)
        else:
            self._held.setdefault(name, Entry(value, offset))


def refreshed(admin: Admin, partitions: list[Entries], timeout_seconds: float) -> list[Entries]:
    """Refresh several partitions of one topic as `Entries.refresh` does. Without new records, send one request."""
    try:
        ends = end_offsets.high_watermarks(admin, [each.at for each in partitions])
        outdated = [each for each, end in zip(partitions, ends, strict=True) if each.read_to != end]
        bounds = end_offsets.barriers(admin, [each.at for each in outdated], timeout_seconds)
        for each, result in zip(outdated, bounds, strict=True):
            each.take_in(result)
    except LogNotFoundError:
        for each in partitions:
            each.forget()
    return partitions


def records_of(key: str, text: str) -> Records:
    """Return the records of an entry. The first one decides whether the entry exists already.

    Raises RecordTooLargeError if readers would reject the entry.
    """
    data = text.encode()
    if len(data) > MOST_TEXT_BYTES:
        raise RecordTooLargeError(
            f"the entry {key!r} of the registry has {len(data)} bytes, and readers accept at most {MOST_TEXT_BYTES}. "
            f"Nothing of it was written. Use shorter job names, fewer partitions or fewer input files."
        )
    data = data if len(data) <= _PLAIN_BYTES else zlib.compress(data)
    if len(data) <= _PIECE_BYTES:
        return [(key, data)]
    pieces = [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)]
    head = f'{{"pieces":{len(pieces)}}}'.encode()
    return [(key, head), *((_piece(key, number), piece) for number, piece in enumerate(pieces))]


def _piece(key: str, number: int) -> str:
    topic, _, remaining = key.partition("/")
    return f"{topic}/piece/{remaining}/{number}"


def _name(key: bytes | None) -> str | None:
    """Return a record's key as text, None if it is not the key of an entry."""
    try:
        name = None if key is None else key.decode()
    except UnicodeDecodeError:
        return None
    return name if name is not None and _KEY.fullmatch(name) else None


def inflate(data: bytes, most: int) -> bytes:
    """Return data that zlib compressed, without more memory than for ``most`` bytes.

    Raises ValueError if the result is larger, or the data ends too early, and zlib.error for other data.
    """
    inflater = zlib.decompressobj()
    result = inflater.decompress(data, most + 1)
    if len(result) > most or not inflater.eof:
        raise ValueError(f"compressed data has an end after at most {most} bytes")
    return result
