"""Keys that other producers wrote: this package chooses the same partitions, and notes keys in other ones."""

import json
import os

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from spark_cas.core.errors import FormatError, OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.partitioner import Placement, partition_of_key
from spark_cas.log.expanding import expand_log
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.planning import pin_plan
from spark_cas.options.table import partitioner
from tests.kafka.clients import SECONDS, admin_of, create_topic
from tests.support.faults import Fault, FaultyLog, When

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

CRC32, MURMUR2 = (Placement(each, named=False) for each in ("crc32", "murmur2"))
KEYS = [b"N%d" % number for number in range(300)]


def produce(broker, topic, keys, **settings):
    """Produce records with these keys, and return the partition of each key."""
    placed = {}

    def delivered(error, message):
        assert error is None
        placed[message.key()] = message.partition()

    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for key in keys:
        producer.produce(topic, b"value", key, on_delivery=delivered)
    assert producer.flush(SECONDS) == 0
    producer.close()
    return placed


def spec_of(broker, topic):
    return KafkaSpec(broker.bootstrap, topic, topic)


def look(spec, placement, **more):
    with KafkaLog(spec) as log:
        return log.preflight(placement=placement, **more)


@pytest.mark.parametrize("name", ["murmur2", "murmur2_random", "consistent", "consistent_random", None])
def test_a_producer_puts_each_key_into_the_same_partition(broker, name):
    """The names of partitioners in librdkafka. Its default is ``consistent_random``."""
    topic = create_topic(broker.bootstrap, 7)
    keys = [*KEYS, *(os.urandom(1 + number % 40) for number in range(300))]
    placed = produce(broker, topic, keys, **({"partitioner": name} if name else {}))
    own = partitioner(name or "consistent_random")
    assert {key: partition_of_key(key, 7, own) for key in keys} == placed
    assert set(placed.values()) == set(range(7))


@pytest.mark.parametrize(("name", "same", "other"), [("consistent", CRC32, MURMUR2), ("murmur2", MURMUR2, CRC32)])
def test_keys_that_another_partitioner_placed_are_a_note(broker, name, same, other):
    topic = create_topic(broker.bootstrap, 4)
    produce(broker, topic, KEYS, partitioner=name)
    spec = spec_of(broker, topic)
    found = look(spec, other)
    assert found.keys_elsewhere in found.notes
    assert f"partitioner={same.partitioner}" in found.keys_elsewhere
    assert look(spec, same).keys_elsewhere == "" == look(spec, None).keys_elsewhere
    assert look(spec, other, begun=True).keys_elsewhere == ""


def test_without_a_partitioner_that_matches_none_is_advised(broker):
    topic = create_topic(broker.bootstrap, 4)
    produce(broker, topic, KEYS, partitioner="consistent")
    produce(broker, topic, KEYS[:6], partitioner="murmur2")
    for placement in (CRC32, MURMUR2):
        found = look(spec_of(broker, topic), placement).keys_elsewhere
        assert "by='partition'" in found


def test_a_recorded_partitioner_is_not_to_be_changed_by_the_advice(broker):
    topic = create_topic(broker.bootstrap, 4)
    spec = spec_of(broker, topic)
    with KafkaLog(spec) as log:
        pin_plan(log, "job", ExpectedOffsets("none"), placement=Placement("murmur2", named=True))
    produce(broker, topic, KEYS, partitioner="consistent")
    assert "by='partition'" in look(spec, MURMUR2).keys_elsewhere


@pytest.mark.parametrize("keys", [[], [None], [b"spark_cas.kv/leader"]], ids=["none", "null", "own"])
def test_records_without_a_key_to_place_are_not_sampled(broker, keys):
    topic = create_topic(broker.bootstrap, 4)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(4):
        for key in keys:
            producer.produce(topic, b"value", key, partition)
    assert producer.flush(SECONDS) == 0
    producer.close()
    for placement in (CRC32, MURMUR2):
        assert look(spec_of(broker, topic), placement).notes == ()


def test_a_key_is_judged_by_the_partition_count_of_its_time(broker):
    topic = create_topic(broker.bootstrap, 2)
    spec = spec_of(broker, topic)
    produce(broker, topic, KEYS, partitioner="consistent")
    with KafkaLog(spec) as log:
        expand_log(log, 5)
    assert look(spec, CRC32).keys_elsewhere == ""
    assert look(spec, MURMUR2).keys_elsewhere != ""


def test_partitions_that_another_tool_added_put_keys_elsewhere(broker):
    topic = create_topic(broker.bootstrap, 2)
    produce(broker, topic, KEYS, partitioner="consistent")
    admin = admin_of(broker.bootstrap)  # its futures fail after it is garbage-collected
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(SECONDS)
    assert look(spec_of(broker, topic), CRC32).keys_elsewhere != ""


def test_the_newest_records_of_each_partition_are_sampled(broker):
    """About two records at the end of each partition are placed differently from the thousands before them."""
    topic = create_topic(broker.bootstrap, 3)
    produce(broker, topic, [b"%d" % number for number in range(5_000)], partitioner="consistent")
    spec = spec_of(broker, topic)
    assert look(spec, CRC32).keys_elsewhere == ""
    produce(broker, topic, KEYS[:6], partitioner="murmur2")
    assert look(spec, CRC32).keys_elsewhere != ""


def test_the_record_is_of_one_topic_and_readable(broker):
    topic = create_topic(broker.bootstrap, 2)
    spec = spec_of(broker, topic)
    with KafkaLog(spec) as log:
        assert log.layouts().partitioner is None
        pin_plan(log, "job", ExpectedOffsets("none"), placement=Placement("crc32", named=True))
        log_id = log.layout().log_id
        held = log._registry.of(f"{topic}/partitioner/{log_id}").texts(f"{topic}/")
        assert [json.loads(text) for text in held] == [{"partitioner": "crc32"}]
    with KafkaLog(KafkaSpec(broker.bootstrap, create_topic(broker.bootstrap, 2), topic)) as other:
        assert other.layouts().partitioner is None


def test_a_record_of_a_newer_version_is_an_error(broker):
    topic = create_topic(broker.bootstrap, 2)
    with KafkaLog(spec_of(broker, topic)) as log:
        log._registry.put(f"{topic}/partitioner/{log.layout().log_id}", '{"partitioner":"fnv1a"}')
        with pytest.raises(FormatError):
            log.layouts()


def test_another_partitioner_that_another_write_recorded_at_that_moment_is_an_error(broker):
    spec = spec_of(broker, create_topic(broker.bootstrap, 2))
    none = ExpectedOffsets("none")
    with KafkaLog(spec) as log, KafkaLog(spec) as other:

        def record() -> None:
            pin_plan(other, "theirs", none, placement=Placement("murmur2", named=True))

        late = FaultyLog(log, Fault("record_partitioner", 1, When.BEFORE, record))
        with pytest.raises(OptionError):
            pin_plan(late, "own", none, placement=Placement("crc32", named=True))
        assert log.layouts().partitioner == "murmur2"
        assert log.jobs() == ("theirs",)
