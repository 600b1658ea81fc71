"""A partition of a compacted topic as a map: the first record of a key holds until a tombstone removes the key.

Who writes takes a ticket: its records lie in its open transaction, from some offset on. It waits until all in front
of that is decided, reads it, and commits only if what it wrote is still right there. So of two writers of a key the
one that came to lie behind sees what became of the other, and a key never has two committed records: whatever
compaction keeps, it keeps the one that holds. No writer fences another for that, so many can write at once.
"""

import logging
import random
import re
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.errors import FormatError, LogNotFoundError, StorageError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.records import records_of_bytes
from spark_cas.log import clock
from spark_cas.log.kafka import ends
from spark_cas.log.kafka.append.sending import produce
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.codes import Meaning, meaning_of, reason_of
from spark_cas.log.kafka.client.error_text import NotGivenError, plain_error
from spark_cas.log.kafka.client.readers import Readers
from spark_cas.log.kafka.client.rights import on_topic, to_claim
from spark_cas.log.kafka.coordinators import require_coordinators
from spark_cas.log.kafka.marks import proven_bounds
from spark_cas.log.kafka.reading import read_entries
from spark_cas.log.patience import Wait, within

_IDS = 1024
"""Two writers that draw the same id at the same time fence each other, and try again; brokers keep ids for days."""

_TRANSACTION_MS = 20_000
"""How long a writer that was killed keeps the others waiting, beside the 10 s in which brokers look for such."""

_TICKET_SECONDS = 15.0
_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.1

_PLAIN_BYTES = 1_000
"""A longer value is deflated: of a completion that leaves an eighth."""
_PIECE_BYTES = 250_000
"""Whatever ``max.message.bytes`` is, it is seldom less. A longer value goes into several records."""
_DEFLATED = b"x"
"""What zlib's format begins with, and no JSON does."""
_IN_PIECES = re.compile(rb'\{"pieces":([0-9]+)\}')
_KEY = re.compile(
    r"registry|([^/]+)/(plan|completion|outcome|input|cancelled|piece|expansion|layout|partitioner)/(.+)", re.DOTALL
)

_CHANCE = random.SystemRandom()
_LOG = logging.getLogger("spark_cas")


@dataclass(frozen=True, slots=True)
class Entry:
    """A record that holds."""

    value: bytes
    offset: int


Records = list[tuple[str, bytes | None]]
"""Keys and values to append; None is a tombstone."""


class Entries:
    """The entries of one partition. They are read when first asked for, and after that only what came since."""

    def __init__(self, readers: Readers, admin: Admin, topic: str, partition: int) -> None:
        spec = readers.spec
        open_ms = min(_TRANSACTION_MS, spec.transaction_timeout_ms)
        self._spec = replace(spec, topic=topic, transaction_timeout_ms=open_ms)
        self._readers = readers
        self._admin = admin
        self.at = TopicPartition(topic, partition)
        self._held: dict[str, Entry] = {}
        self._read_to = 0

    @property
    def held(self) -> Mapping[str, Entry]:
        """All entries as of the last `refresh`."""
        return self._held

    def refresh(self) -> "Entries":
        """Read all that was recorded before this was called, nothing if there is no topic. Raises StorageError."""
        return refreshed(self._admin, [self], self._spec.patience_seconds)[0]

    def prove(self) -> None:
        """As `refresh`, whichever broker answers. Raises StorageError."""
        self.take_in(proven_bounds(self._admin, self._spec, self.at, self._drawn_id()))

    def forget(self) -> None:
        """There is no topic, or no more: what it held is not recorded."""
        self._held.clear()
        self._read_to = 0

    def text(self, key: str) -> str | None:
        """The value of an entry as of the last `refresh`, None when it has none. Raises FormatError."""
        entry = self._held.get(key)
        if entry is None:
            return None
        try:
            pieces = _IN_PIECES.fullmatch(entry.value)
            data = entry.value
            if pieces is not None:
                data = b"".join(self._held[_piece(key, number)].value for number in range(int(pieces[1])))
            return (zlib.decompress(data) if data[:1] == _DEFLATED else data).decode()
        except (KeyError, ValueError, zlib.error):
            raise FormatError(
                f"the entry {key!r} at offset {entry.offset} of partition {self.at.partition} of topic "
                f"{self.at.topic} is not what this spark_cas writes. Was it written by a newer version, or does "
                f"another program write to the topic?"
            ) from None

    def put(self, key: str, records: Records) -> None:
        """Record an entry, of which these are the `records_of`, unless there is one; then see what `held` has.

        Raises StorageError.
        """
        self._write(lambda: [] if key in self._held else records)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove entries for good. Raises StorageError."""
        gone = list(keys)
        self._write(lambda: [(each, None) for key in gone for each in self._keys_of(key)])

    def _keys_of(self, key: str) -> list[str]:
        """The keys of an entry's records, none when there is none."""
        entry = self._held.get(key)
        if entry is None:
            return []
        pieces = _IN_PIECES.fullmatch(entry.value)
        return [key, *(_piece(key, number) for number in range(int(pieces[1]) if pieces else 0))]

    def _write(self, change: Callable[[], Records]) -> None:
        """Append what ``change`` makes of the entries, all of it or nothing, again until it was right where it lies.

        Raises StorageError.
        """
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
            except NotGivenError:
                raise
            except (StorageError, LogNotFoundError) as error:
                why = error.message
            if not wait.again(why):
                raise StorageError(
                    f"{doing}: it did not take an entry within {wait.waited:.0f} s ({why}). Check that the brokers "
                    f"are well, then run the same job again."
                )

    def _try(self, change: Callable[[], Records]) -> bool:
        """One try; False when nothing of it is visible and another may succeed."""
        self.take_in(ends.barrier(self._admin, self.at, self._spec.request_seconds))
        if not change():
            return True
        require_coordinators(self._admin)
        producer = TransactionalProducer(self._spec, self._drawn_id())
        try:
            producer.init(self._spec.request_seconds)
            # While the client connected, others may have come to their end.
            self.take_in(ends.stable_bounds(self._admin, self.at))
            records = change()
            if not records:
                return True
            producer.begin()
            right = False
            try:
                delivered = produce(producer, self.at, _table(records), clock.now_ms(), self._spec.request_seconds)
                first = None if delivered is None or delivered.range is None else delivered.range.base_offset
                right = first is not None and self._right_at(first, records, change)
            finally:
                if not right:
                    producer.abort()  # whatever stopped it: others need not wait for the transaction's timeout
            if not right:
                return False
            producer.commit()
        finally:
            producer.close()
        return True

    def _right_at(self, first: int, records: Records, change: Callable[[], Records]) -> bool:
        """Whether records are still those to append once all in front of the first of them is decided and read.

        False as well when that lasts too long.
        """
        deadline = time.monotonic() + _TICKET_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        while self._read_to < first:
            decided = min(first, ends.last_stable_offset(self._admin, self.at))
            if decided > self._read_to:
                self.take_in(Bounds(0, decided))
                if change() != records:
                    return False
            elif time.monotonic() > deadline:
                return False
            else:
                time.sleep(pause)
                pause = min(_LONGEST_PAUSE_SECONDS, 2 * pause)
        return True

    def _drawn_id(self) -> str:
        return f"{self._spec.prefix}/{self.at.topic}/{_CHANCE.randrange(_IDS)}"

    def take_in(self, bounds: Bounds) -> None:
        """Take in what came since and lies below the end."""
        new = OffsetRange(max(self._read_to, bounds.start_offset), max(self._read_to, bounds.end_offset))
        for offset, key, value in read_entries(self._readers, self.at, new):
            self._take(offset, key, value)
        self._read_to = new.end_offset

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
    """Several partitions of one topic, as `Entries.refresh` leaves each, with as few requests as can be."""
    try:
        bounds = ends.barriers(admin, [each.at for each in partitions], timeout_seconds)
        for each, found in zip(partitions, bounds, strict=True):
            each.take_in(found)
    except LogNotFoundError:
        for each in partitions:
            each.forget()
    return partitions


def kind_of(key: str) -> str:
    """What an entry is: the middle of its key."""
    found = _KEY.fullmatch(key)
    return (found[2] if found else None) or ""


def records_of(key: str, text: str) -> Records:
    """The records of an entry. The first of them is the one that decides whether there is one already."""
    data = text.encode()
    data = data if len(data) <= _PLAIN_BYTES else zlib.compress(data)
    if len(data) <= _PIECE_BYTES:
        return [(key, data)]
    pieces = [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)]
    head = f'{{"pieces":{len(pieces)}}}'.encode()
    return [(key, head), *((_piece(key, number), piece) for number, piece in enumerate(pieces))]


def _piece(key: str, number: int) -> str:
    topic, _, rest = key.partition("/")
    return f"{topic}/piece/{rest}/{number}"


def _name(key: bytes | None) -> str | None:
    """A record's key as text, None when it is no entry's."""
    try:
        name = None if key is None else key.decode()
    except UnicodeDecodeError:
        return None
    return name if name is not None and _KEY.fullmatch(name) else None


def _table(records: Records) -> pa.Table:
    return records_of_bytes([key.encode() for key, _ in records], [value for _, value in records])
