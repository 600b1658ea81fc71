"""The load lock of a topic: the metadata of one offset of a group, changed in a transaction.

All writers of the lock share a transactional id. The newest one has fenced the others. It reads the current state,
and commits only if that is the state it expects. So each change follows the previous one. A read takes one request,
however often the state has changed.
"""

import base64
import zlib

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.errors import FormatError, StorageError, UndecidedError
from spark_cas.core.load_locks import LoadLocks, load_locks_from_json
from spark_cas.core.recorded_fields import to_json
from spark_cas.log.deadline import Wait, within
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.codes import STUMBLED, Meaning, meaning_of, passes, reason_of
from spark_cas.log.kafka.client.error_text import plain_error
from spark_cas.log.kafka.client.members import Members
from spark_cas.log.kafka.client.rights import to_claim
from spark_cas.log.kafka.registry.group_metadata import MAX_METADATA_BYTES, GroupMetadata
from spark_cas.log.kafka.registry.inflating import inflate
from spark_cas.log.kafka.settings.transactional_ids import id_of_load_locks

_MOST_TEXT_BYTES = 1024 * 1024
"""The largest value before compression. Even with the longest names it has a few kilobytes."""
_DOING = "changing the locks of the log"


class KafkaLockTable:
    """The `spark_cas.log.protocol.LockTable` of a topic, stored in an offset of a group."""

    def __init__(self, members: Members) -> None:
        spec = members.spec
        self._spec = spec.with_short_transaction()
        self._group = GroupMetadata(members, spec.load_locks_group, "the locks")
        # Each topic has a partition 0.
        self._at = TopicPartition(spec.topic, 0)

    def load_locks(self) -> LoadLocks:
        """Return the current locks, as the protocol requires."""
        return self._read(self._spec.open_transaction_wait_ms / 1000)

    def put_load_locks(self, locks: LoadLocks) -> bool:
        """Record locks, as the protocol requires. Retry transient errors, each time with a new producer."""
        wait = Wait(self._spec.patience_seconds, _DOING)
        while True:
            try:
                with within(wait.left):
                    return self._try(locks)
            except KafkaException as error:
                code = error.args[0].code()
                if meaning_of(code) is Meaning.FENCED:
                    return False
                if not (code == STUMBLED or passes(code, reached=True)) or not wait.again(reason_of(code)):
                    raise plain_error(error, _DOING, *to_claim(self._spec)) from None
            except UndecidedError as error:
                if not wait.again(error.message):
                    raise

    def _try(self, locks: LoadLocks) -> bool:
        producer = TransactionalProducer(self._spec, id_of_load_locks(self._spec))
        try:
            producer.init(self._spec.open_transaction_wait_ms / 1000)
            now = self._read(self._spec.request_seconds)
            if now.number != locks.number - 1:
                return now == locks  # by an earlier attempt with an unknown result
            producer.begin()
            self._group.adding(producer, [TopicPartition(self._at.topic, self._at.partition, 0, _encode(locks))])()
            producer.commit()
        finally:
            producer.close()
        return True

    def _read(self, timeout_seconds: float) -> LoadLocks:
        (text,) = self._group.read([self._at], timeout_seconds)
        return LoadLocks() if text is None else _decode(text)


def _encode(locks: LoadLocks) -> str:
    text = base64.b64encode(zlib.compress(to_json(locks).encode())).decode()
    if len(text) > MAX_METADATA_BYTES:
        raise StorageError(
            f"{_DOING}: {len(locks.held)} loads with long names write to the log at once, and brokers keep no more "
            f"than {MAX_METADATA_BYTES} bytes of them. Run the same job again once one of them is complete."
        )
    return text


def _decode(text: str) -> LoadLocks:
    try:
        return load_locks_from_json(inflate(base64.b64decode(text), _MOST_TEXT_BYTES))
    except (ValueError, zlib.error):
        raise FormatError(
            "the locks of the log are not in the format of this spark_cas. Either a newer version wrote them, or "
            "another program commits offsets to the group."
        ) from None
