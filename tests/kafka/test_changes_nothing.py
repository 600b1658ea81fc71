"""Reports and commands with ``--dry-run`` change no topic, setting, record or committed offset of a broker."""

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from spark_cas.log.kafka import KafkaLog
from spark_cas.programs.errors import ExitCode
from tests.kafka.clients import SECONDS, admin_of
from tests.kafka.open_transactions import place_on
from tests.support.loads import TEN, run_job
from tests.support.planted_problems import lock_of_ended_process, undecided_load, unfinished_job
from tests.support.programs import run_cli
from tools.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

READING = ["doctor", "doctor --json", "jobs", "describe", "offsets", "progress", "read --limit 1", "tail -n 1"]
DRY = [
    "expand --partitions 3",
    "trim --partition 0 --before 5",
    "forget done --force",
    "abort locked",
]


def state_of(bootstrap):
    """Return the settings of a broker and its topics, the offsets of all partitions, and those of all groups.

    The topics include those in which the broker records transactions and committed offsets.
    """
    admin = admin_of(bootstrap)
    topics = admin.list_topics(timeout=SECONDS).topics
    resources = [
        ConfigResource(ResourceType.BROKER, "1"),
        *(ConfigResource(ResourceType.TOPIC, each) for each in topics),
    ]
    settings = {
        str(resource): {name: entry.value for name, entry in requested.result(SECONDS).items()}
        for resource, requested in admin.describe_configs(resources).items()
    }
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_uncommitted"})
    parts = [TopicPartition(name, each) for name, topic in topics.items() for each in topic.partitions]
    offsets = {(each.topic, each.partition): reader.get_watermark_offsets(each, SECONDS) for each in parts}
    reader.close()
    groups = [each.group_id for each in admin.list_consumer_groups().result(SECONDS).valid]
    committed = {}
    for group in sorted(groups):
        [requested] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        entries = requested.result(SECONDS).topic_partitions
        committed[group] = {(each.topic, each.partition, each.offset, each.metadata) for each in entries}
    return settings, offsets, committed


def test_reports_and_dry_runs_change_nothing(conf):
    with KafkaBroker(conf) as broker:
        place = place_on(broker.bootstrap)
        with KafkaLog(place.spec) as log:
            run_job(log, "done", TEN)
            unfinished_job(log)
            lock_of_ended_process(log)
            check_unchanged(place, broker, [*READING, *(f"{each} --dry-run" for each in DRY)])
            for command in DRY:
                name, *arguments = command.split()
                before = state_of(broker.bootstrap)
                assert run_cli(name, *arguments, *place.arguments).code == ExitCode.COMPLETE, command
                assert state_of(broker.bootstrap) != before, command
            # Other commands wait for the open transaction, which the broker aborts after a while.
            undecided_load(log)
            check_unchanged(place, broker, ["doctor", "abort whole --dry-run"])


def check_unchanged(place, broker, commands):
    before = state_of(broker.bootstrap)
    assert any(before[2].values()), "the ledgers are seen"
    for command in commands:
        name, *arguments = command.split()
        ended = run_cli(name, *arguments, *place.arguments)
        assert ended.code in {ExitCode.COMPLETE, ExitCode.WARNING}, (command, ended)
        assert state_of(broker.bootstrap) == before, command
