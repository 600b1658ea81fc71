"""Put the stored records and metadata of a topic on a broker."""

import base64
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import SECONDS, admin_of


@contextmanager
def restored_topic(
    address: str, stored: dict[str, Any], recorded: dict[str, Any]
) -> Iterator[tuple[KafkaLog, dict[str, Any]]]:
    """Create the topics of a stored log on a broker, and return the log and the facts about it.

    The broker chooses a new id for the topic, so the function replaces the old id in the stored texts.

    Args:
        address: The address of the broker.
        stored: The records of the registry, and the metadata of the ledger and of the load locks.
        recorded: The facts about the log, with its rows.
    """
    topic = stored["topic"]
    spec = KafkaSpec(address, topic, prefix=topic)
    admin = admin_of(address)
    topics = [
        NewTopic(topic, len(recorded["rows"])),
        NewTopic(spec.layouts_topic, 1),
        NewTopic(spec.registry_topic, 16),
    ]
    for made in admin.create_topics(topics).values():
        made.result(SECONDS)
    with KafkaLog(spec) as log:
        old, new = recorded["layouts"]["layout"]["log_id"], log.layout().log_id
        for partition, rows in recorded["rows"].items():
            _append_rows(address, topic, int(partition), rows)
    producer = Producer({"bootstrap.servers": address})
    for name in ("registry", "layouts"):
        for partition, _, *data in stored[name]:
            key, value = (None if each is None else _with_id(base64.b64decode(each), old, new) for each in data)
            producer.produce(f"{topic}.{name}", value, key, partition)
    assert producer.flush(SECONDS) == 0
    for job, entries in stored["ledger"].items():
        for partition, text in enumerate(entries):
            if text:
                end_offset = json.loads(text)["progress"]["end_offset"]
                at = TopicPartition(topic, partition, end_offset, text.replace(old, new))
                _commit(address, spec.group(job), at)
    _commit(address, spec.load_locks_group, TopicPartition(topic, 0, 0, stored["locks"]))
    with KafkaLog(spec) as log:
        yield log, json.loads(json.dumps(recorded).replace(old, new))


def _with_id(data: bytes, old: str, new: str) -> bytes:
    if data[:1] == b"x":
        return zlib.compress(_with_id(zlib.decompress(data), old, new))
    return data.replace(old.encode(), new.encode())


def _append_rows(address: str, topic: str, partition: int, rows: list[tuple[int, str, str]]) -> None:
    """Append rows at their offsets. A transaction marker is between two rows that are not adjacent.

    If there are more offsets between them, an aborted transaction fills them.
    """
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"restore-{topic}-{partition}"})
    producer.init_transactions(SECONDS)
    following = [row[0] for row in rows[1:]] + [rows[-1][0] + 2]
    producer.begin_transaction()
    for (offset, key, value), after in zip(rows, following, strict=True):
        producer.produce(topic, value, key, partition)
        if after == offset + 1:
            continue
        producer.commit_transaction(SECONDS)
        producer.begin_transaction()
        if after > offset + 2:
            for _ in range(after - offset - 3):
                producer.produce(topic, "aborted", partition=partition)
            assert producer.flush(SECONDS) == 0
            producer.abort_transaction(SECONDS)
            producer.begin_transaction()
    producer.abort_transaction(SECONDS)


def _commit(address: str, group: str, at: TopicPartition) -> None:
    member = Consumer({"bootstrap.servers": address, "group.id": group})
    member.commit(offsets=[at], asynchronous=False)
    member.close()
