"""Helpers that use a broker through its ordinary client. Every call has a deadline."""

import os
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tools.kafka_broker.jars import java, kafka_jars, tools_jars
from tools.kafka_broker.metadata import known_to
from tools.kafka_broker.waiting import wait_until

SECONDS = 60
_ANSWER_SECONDS = 5


def admin_of(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


def add_kafka_tool(folder: Path, name: str, main: str) -> None:
    """Create a command of Kafka, such as ``kafka-acls.sh``, that runs the class ``main``."""
    jars = f"{kafka_jars()}/*:{tools_jars()}/*"
    tool = folder / name
    tool.write_text(f'#!/bin/sh\nexec "{java()}" -XX:TieredStopAtLevel=1 -cp "{jars}" {main} "$@"\n')
    tool.chmod(0o755)


def create_topic(address: str, partitions: int = 1, **config: str) -> str:
    """Create a topic with a new name, and wait until all nodes of ``address`` know the leaders of its partitions.

    The names of settings have underscores instead of dots. The controller reports success before the other nodes know
    the topic, on a busy machine seconds before.
    """
    name = f"t-{os.urandom(4).hex()}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    topic = NewTopic(name, partitions, config=settings)
    admin = admin_of(address)  # its futures fail after it is garbage-collected
    # A broker that has just resumed is fenced for a moment. It reports no brokers, and the client accepts that.
    wait_until(lambda: bool(admin.list_topics(timeout=SECONDS).brokers), SECONDS, lambda: "no broker is alive")
    wait_until(lambda: _is_made(admin, topic), SECONDS, lambda: "all are fenced")
    wait_until(
        lambda: all(_is_led(node, name, partitions) for node in address.split(",")),
        SECONDS,
        lambda: f"{name} has no leaders",
    )
    return name


def _is_made(admin: AdminClient, topic: NewTopic) -> bool:
    """Try to create the topic, and return False if all brokers are fenced.

    A broker is fenced after a restart, or if a busy machine delayed its heartbeats.
    """
    try:
        admin.create_topics([topic])[topic.topic].result(SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
            raise
        return False
    return True


def _is_led(node: str, topic: str, partitions: int) -> bool:
    """Return whether a node knows a leader of every partition of a topic."""
    found = known_to(int(node.rpartition(":")[2]), _ANSWER_SECONDS).topics.get(topic, {})
    return len(found) == partitions and all(each.leader >= 0 for each in found.values())


def configure(address: str, topic: str, **config: str) -> None:
    """Change settings of a topic. Their names are as in `create_topic`."""
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = admin_of(address)
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)


def leader_of(address: str, topic: str, partition: int = 0) -> int:
    """Return the id of the partition's leader, -1 if it has none."""
    return admin_of(address).list_topics(topic, SECONDS).topics[topic].partitions[partition].leader


def append(address: str, topic: str, *values: str, commit: bool = True) -> list[int]:
    """Append values to partition 0 in one transaction, and return the offsets that the broker reported."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"{topic}-0"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    offsets: list[int] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda _, sent: offsets.append(offset_of(sent)))
    assert producer.flush(SECONDS) == 0
    if commit:
        producer.commit_transaction(SECONDS)
    else:
        producer.abort_transaction(SECONDS)
    return offsets


def offset_of(message: Message) -> int:
    """Return the offset of a delivered message, -1 if the broker reported none."""
    offset = message.offset()
    return -1 if offset is None else offset


def committed_values(address: str, topic: str) -> list[str]:
    """Return the values of all committed records in partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[str] = []
    try:
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None, f"no end of the partition within {SECONDS} s"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return values
            value = message.value()
            values.append("" if value is None else value.decode())
    finally:
        consumer.close()
