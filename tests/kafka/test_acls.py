"""The ACLs that a load needs: it works with exactly these, and its error names any one that is missing."""

import os
import re
import subprocess
import time
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from spark_cas.core.errors import LogError, StorageError
from spark_cas.core.load_locks import LoadLock
from spark_cas.core.offsets import OffsetRange
from spark_cas.log import clock
from spark_cas.log.jobs import forget_job
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.client_errors import Right, on_groups, on_ids, on_topic
from spark_cas.log.kafka.settings.kafka_spec import DEFAULT_PREFIX, KafkaSpec
from spark_cas.log.load.atomic_load import with_group
from spark_cas.log.load.planning import pin_plan
from spark_cas.programs.errors import ExitCode
from tests.contract.whole import run_whole
from tests.kafka.clients import SECONDS, add_kafka_tool, admin_of, append, create_topic
from tests.kafka.documented_rights import KAFKA, READ, documented, tasks
from tests.kafka.secured import USER, sasl
from tests.pages import ROOT, blocks
from tests.support.loads import TEN, run_job
from tests.support.planted_problems import END, unfinished_job
from tests.support.programs import run_cli
from tests.support.writing import JobWriter

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

WITHIN = 15
MOST_JOBS = 10
WITH_EXPANSIONS = "view `offsets`"


def least(topic: str, prefix: str) -> dict[str, Right]:
    """Return the ACLs that docs/kafka.md lists. Read and Write include Describe."""
    registry, layouts = f"{prefix}.registry", f"{prefix}.layouts"
    return {
        "topic read": on_topic("Read", topic),
        "topic write": on_topic("Write", topic),
        "registry read": on_topic("Read", registry),
        "registry write": on_topic("Write", registry),
        "registry create": on_topic("Create", registry),
        "layouts read": on_topic("Read", layouts),
        "layouts write": on_topic("Write", layouts),
        "layouts create": on_topic("Create", layouts),
        "groups": on_groups("Read", prefix),
        "ids": on_ids("Write", prefix),
    }


OF_PREFLIGHT = ("topic read", "registry create", "ids")
"""The rights for which `make test` runs a preflight alone. test_idempotence.py plans a write without each right."""


def seeing(topic: str) -> Right:
    return on_topic("DescribeConfigs", topic)


@pytest.fixture
def spec(secured) -> KafkaSpec:
    return secured.spec(create_topic(secured.open))


def make_registry(secured, spec, *names: str) -> None:
    """Create these registry topics, by default both."""
    admin = admin_of(secured.open)  # its futures fail after it is garbage-collected
    for name in names or (spec.registry_topic, spec.layouts_topic):
        topic = NewTopic(name, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([topic])[name].result(SECONDS)


@contextmanager
def refused_soon():
    began = time.monotonic()
    with pytest.raises(LogError) as refused:
        yield refused
    assert time.monotonic() - began < WITHIN
    assert "canary" not in f"{refused.value} {refused.value!r}"


def test_a_whole_load_works_with_exactly_the_documented_rights(secured, spec):
    secured.allow([*least(spec.topic, spec.prefix).values(), seeing(spec.topic)])
    with KafkaLog(spec) as log:
        assert log.preflight().notes == ()
        assert run_job(log, "job", TEN).rows == 10


@pytest.mark.full
def test_the_commands_of_the_page_give_exactly_these_rights(secured, spec, tmp_path, monkeypatch):
    secured.allow([])
    add_kafka_tool(tmp_path, "kafka-acls.sh", "org.apache.kafka.tools.AclCommand")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    [script] = [each.text for each in blocks(KAFKA) if "kafka-acls.sh" in each.text]
    own = {"host:9092": secured.open, "loader": USER, "flights": spec.topic, "spark-cas": spec.prefix}
    for example, value in own.items():
        script = script.replace(example, value)
    ended = subprocess.run(["sh", "-ec", script], check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert secured.has_exactly([*least(spec.topic, spec.prefix).values(), seeing(spec.topic)])


def test_the_right_to_create_is_not_needed_once_the_registry_is_there(secured, spec):
    make_registry(secured, spec)
    rights = least(spec.topic, spec.prefix)
    del rights["registry create"], rights["layouts create"]
    secured.allow(rights.values())
    with KafkaLog(spec) as log:
        log.preflight()
        assert run_job(log, "job", TEN).rows == 10


def test_load_without_access_to_settings_works_and_notes_it(secured, spec):
    secured.allow(least(spec.topic, spec.prefix).values())
    with KafkaLog(spec) as log:
        found = log.preflight()
        assert found.max_record_bytes is None
        assert "the ACL DescribeConfigs on the topic" in "".join(found.notes)
        assert run_job(log, "job", TEN).rows == 10


@pytest.mark.parametrize(
    "missing",
    [each if each in OF_PREFLIGHT else pytest.param(each, marks=pytest.mark.full) for each in least("t", "p")],
)
def test_preflight_names_the_right_that_is_missing(secured, spec, missing):
    rights = least(spec.topic, spec.prefix)
    right = rights.pop(missing)
    if not missing.endswith("create"):
        make_registry(secured, spec)
    secured.allow(rights.values())
    with KafkaLog(spec) as log, refused_soon() as refused:
        log.preflight()
    assert f"this user lacks an ACL: {right}. " in str(refused.value)
    assert f"kafka-acls.sh --add --allow-principal User:<user> {right.options}." in str(refused.value)


@pytest.mark.parametrize("missing", least("t", "p"))
def test_a_load_without_preflight_names_the_right_that_is_missing(secured, spec, missing, capfd):
    rights = least(spec.topic, spec.prefix)
    right = rights.pop(missing)
    if not missing.endswith("create"):
        make_registry(secured, spec)
    secured.allow(rights.values())
    with KafkaLog(spec) as log, refused_soon() as refused:
        run_job(log, "job", TEN)
    assert "this user lacks an ACL: " in str(refused.value)
    assert str(right) in str(refused.value)
    assert right.options in str(refused.value)
    assert "canary" not in capfd.readouterr().err  # the client logs its fatal errors there


@pytest.mark.parametrize(("which", "partitions"), [("registry", 16), ("layouts", 1)])
def test_missing_registry_error_has_the_command_for_an_administrator(secured, spec, which, partitions):
    rights = least(spec.topic, spec.prefix)
    del rights[f"{which} create"]
    secured.allow(rights.values())
    name = f"{spec.prefix}.{which}"
    line = f"kafka-topics.sh --create --topic {name} --partitions {partitions} --config cleanup.policy=compact"
    with KafkaLog(spec) as log:
        with refused_soon() as refused:
            log.preflight()
        assert line in str(refused.value)
        with refused_soon() as refused:
            run_job(log, "job", TEN)
        assert line in str(refused.value)


def test_forgetting_a_job_takes_no_right_that_its_load_did_not(secured, spec):
    secured.allow(least(spec.topic, spec.prefix).values())
    with KafkaLog(spec) as log:
        run_job(log, "job", TEN, expected="none")
        forget_job(log, "job", time.time_ns() // 1_000_000, force=True)
        assert log.jobs() == ()
        assert run_job(log, "job", TEN, expected="none").rows == 10


def test_a_refused_append_keeps_no_reader_waiting(secured, spec):
    """The writer aborts its transaction, which otherwise stays open until its timeout."""
    rights = least(spec.topic, spec.prefix)
    secured.allow(right for name, right in rights.items() if name != "topic read")
    end_offset, number = 0, 0
    # The broker may reject the append before the partition has any record. Then there is nothing to abort.
    while not end_offset and number < MOST_JOBS:
        number += 1
        with KafkaLog(spec) as log, refused_soon():
            run_job(log, f"job-{number}", TEN)
        with KafkaLog(KafkaSpec(secured.open, spec.topic, spec.prefix, open_transaction_wait_ms=5_000)) as other:
            end_offset = other.bounds(0).end_offset
    assert end_offset > 0


def test_a_reader_needs_no_more_than_to_read_the_topic(secured, spec):
    append(secured.open, spec.topic, "a", "b")
    secured.allow([on_topic("Read", spec.topic)])
    with KafkaLog(spec) as log:
        end = log.bounds(0).end_offset
        assert sum(batch.num_rows for _, batch in log.read(0, OffsetRange(0, end))) == 2
    secured.allow([on_topic("Describe", spec.topic)])
    with KafkaLog(spec) as log, refused_soon() as refused:
        list(log.read(0, OffsetRange(0, end)))
    assert f"lacks an ACL: {on_topic('Read', spec.topic)}." in str(refused.value)


def test_reader_of_atomic_loads_needs_describe_on_the_ledgers(secured, spec):
    """Without this ACL, the error of a request for the ledger names it."""
    with KafkaLog(KafkaSpec(secured.open, spec.topic, spec.prefix)) as writer:
        run_whole(writer, "job", TEN)
    registry = [on_topic("Read", spec.registry_topic), on_topic("Read", spec.layouts_topic)]
    reading = [on_topic("Read", spec.topic), *registry]
    secured.allow([*reading, on_groups("Describe", spec.prefix)])
    with KafkaLog(spec) as log:
        assert log.jobs_as_a_whole(log.layout().log_id) == {"job": True}
        entry = log.progress(0, "job")
        assert entry is not None
        assert entry.rows == 10
    secured.allow(reading)
    with KafkaLog(spec) as log, refused_soon() as refused:
        log.progress(0, "job")
    assert f"on groups that begin with {spec.prefix}/." in str(refused.value)


COMMANDS = {
    "offsets": READ,
    "describe": "`spark-cas describe`",
    "jobs": "`spark-cas describe`",
    "progress": "`spark-cas describe`",
    "abort locked": "`spark-cas abort`",
    "abort whole": "`spark-cas abort`",
    "forget complete --force": "`forget`",
    "expand --partitions 2": "`spark-cas expand`",
    "trim --partition 0 --before 1": "`trim --before`",
    "trim --older-than 30m": "`trim --older-than`",
}
"""Commands, each with its task in docs/kafka.md."""
IN_FULL = {"jobs", "progress", "abort locked"}
"""Commands that need only rights of another command."""


def to_run(command: str, topic: str, prefix: str) -> list[Right]:
    """Return the ACLs that docs/kafka.md lists for a command. A load lock needs no Write on the registry."""
    rights = documented(KAFKA, COMMANDS[command], topic, prefix)
    return [each for each in rights if command != "abort locked" or each != on_topic("Write", f"{prefix}.registry")]


def leave_load(log: KafkaLog, job: str) -> None:
    """Leave a load as after a crash of its driver: with a load lock, or with an open transaction."""
    JobWriter(log, with_group(log, pin_plan(log, job, END, whole=job == "whole"))).must_append("a")
    if job == "locked" and not log.load_locks().held:
        lock = LoadLock(job, "run", ((0, 1),), "", clock.now_ms())
        assert log.put_load_locks(log.load_locks().with_lock(lock))


def append_old(address: str, topic: str) -> None:
    """Append a record of an hour ago at offset 0."""
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, "old", partition=0, timestamp=clock.now_ms() - 3_600_000)
    assert producer.flush(SECONDS) == 0


@pytest.mark.parametrize(
    "command", [pytest.param(each, marks=pytest.mark.full) if each in IN_FULL else each for each in COMMANDS]
)
def test_the_documented_rights_of_a_command_are_necessary_and_sufficient(secured, spec, command):
    login = [text for name, value in sasl().items() for text in ("--log-option", f"kafka.{name}={value}")]
    brokers = ["--bootstrap-servers", secured.sasl, "--topic", spec.topic, "--log-option", f"idPrefix={spec.prefix}"]
    rights = to_run(command, spec.topic, spec.prefix)
    name, *arguments = command.split()

    def run(allowed):
        if name == "abort":
            leave_load(stack.enter_context(KafkaLog(log.spec)), *arguments)
        secured.allow(allowed)
        return run_cli(name, *arguments, *brokers, *login)

    with ExitStack() as stack:
        log = stack.enter_context(KafkaLog(KafkaSpec(secured.open, spec.topic, spec.prefix)))
        if name == "trim":
            append_old(secured.open, spec.topic)
        run_job(log, "complete", TEN)
        if name == "progress":
            unfinished_job(log)  # the registry has the progress of a complete job
        for right in reversed(rights):  # an expansion that has begun needs Write on the layouts only at its end
            denied = run(each for each in rights if each != right)
            assert (denied.code, right.name in denied.err) == (ExitCode.ACCESS_DENIED, True), (right, denied)
            assert (log.jobs()[0], log.layout().partitions) == ("complete", 1)
        assert run(rights).code == 0
        assert log.load_locks().held == ()
        assert log.bounds(0).start_offset == (name == "trim")
        assert ("complete" in log.jobs()) is (name != "forget")
        assert log.layout().partitions == 1 + (name == "expand")


def test_a_reader_that_trims_needs_delete(secured, spec):
    append(secured.open, spec.topic, "a", "b")
    secured.allow([on_topic("Read", spec.topic)])
    with KafkaLog(spec) as log, refused_soon() as refused:
        log.trim(0, 1)
    assert f"lacks an ACL: {on_topic('Delete', spec.topic)}." in str(refused.value)


def test_the_documented_rights_to_create_a_topic_are_necessary_and_sufficient(secured):
    def create(topic, *operations):
        secured.allow(on_topic(each, topic) for each in operations)
        with KafkaLog(secured.spec(topic)) as log:
            return log.create(1)

    for topic, allowed, missing in (("new-1", "Describe", "Create"), ("new-2", "Create", "Describe")):
        with refused_soon() as refused:
            create(topic, allowed)
        assert f"lacks an ACL: {on_topic(missing, topic)}." in str(refused.value)
    assert create("new-3", "Create", "Describe").partitions == 1


def test_forbidden_registry_is_not_treated_as_missing(secured, spec):
    """Otherwise, a completed job would appear never to have run."""
    secured.allow([on_topic("Read", spec.topic)])
    make_registry(secured, spec)
    with KafkaLog(spec) as log, refused_soon() as refused:
        log.completion("job")
    assert str(on_topic("Describe", spec.layouts_topic)) in str(refused.value)
    assert isinstance(refused.value, StorageError)


def test_the_page_for_operators_lists_exactly_the_rights_of_a_load():
    commands = re.findall(r"^\$acls (.+)$", (ROOT / KAFKA).read_text(), re.MULTILINE)
    granted = [
        f"--operation {operation} {place.strip()}"
        for place, operations in (command.split(" --operation ", 1) for command in commands)
        for operation in operations.split(" --operation ")
    ]
    rights = [*least("flights", DEFAULT_PREFIX).values(), seeing("flights")]
    assert sorted(granted) == sorted(right.options for right in rights)


def test_the_table_for_operators_lists_exactly_the_rights_of_the_tests():
    """The test of the commands and those of added partitions take their rights from the table."""
    others = {
        "write with": [on_topic("Write", "t"), Right("IdempotentWrite", "cluster", "kafka-cluster")],
        READ: [on_topic("Read", "t")],
        "create the topic": [on_topic("Create", "t"), on_topic("Describe", "t")],
        "write exactly once": [],
    }
    assert {task: documented(KAFKA, task, "t", "p") for task in others} == others
    tested = {*others, *COMMANDS.values(), WITH_EXPANSIONS} - {READ}
    assert [task for task in tasks(KAFKA) if not any(each in task for each in tested)] == [READ]
