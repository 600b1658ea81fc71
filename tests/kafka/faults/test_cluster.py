"""Three brokers, of which the test kills or freezes the most important one in the middle of a load."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Thread

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import NewTopic

from spark_cas.core.claim import Claim
from spark_cas.core.errors import StorageError, TruncatedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, Truncated, Unknown
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.load.planning import pin_plan
from tests.kafka.clients import SECONDS, admin_of, committed_values, create_topic, leader_of
from tests.kafka.faulted import (
    JOB,
    for_a_while,
    planned_writer,
    require_truth,
    run_as_spark_does,
    run_once,
    spec_of,
)
from tests.long import full
from tests.support.loads import rows_of
from tests.support.writing import JobWriter, table_of
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROWS = rows_of(10, 0)
REQUEST_SECONDS = 3.0
STANDS_STILL_SECONDS = 6 * REQUEST_SECONDS
"""Half of the retry timeout. With the default settings, this is 60 s."""
NODES = {1, 2, 3}
_ASKED_SECONDS = 3.0
"""The time after which a claim or a read has sent its request to the frozen broker, and waits for the response."""
COORDINATORS = 4
"""The number of partitions of each internal topic; see conf/kafka."""


def partition_of(name):
    """Return the partition of an internal topic for a transactional id or a group, by the hash of a Java string."""
    hashed = 0
    for unit in name:
        hashed = (31 * hashed + ord(unit)) & 0x7FFFFFFF
    return hashed % COORDINATORS


def internal_leader(address, topic, name):
    """Return the node that coordinates a transactional id or a group."""
    return leader_of(address, topic, partition_of(name))


def topic_on(cluster, name, nodes, **config):
    """Create a topic of one partition on these nodes, and wait until all nodes know that the first one leads it."""
    admin = admin_of(cluster.bootstrap)
    topic = NewTopic(name, 1, replica_assignment=[nodes], config=config)
    admin.create_topics([topic])[name].result(SECONDS)

    def is_known():
        found = [node.known().topics.get(name, {}).get(0) for node in cluster.nodes]
        return all(each is not None and each.leader == nodes[0] for each in found)

    wait_until(is_known, SECONDS, lambda: f"{name} has no leader")


def in_sync(address, topic):
    """Return the leader of partition 0 and then its other in-sync replicas. Empty if the broker knows no leader."""
    found = admin_of(address).list_topics(topic, SECONDS).topics[topic].partitions
    if not found or found[0].leader == -1:
        return []
    return [found[0].leader, *sorted(set(found[0].isrs) - {found[0].leader})]


def placed(cluster, *, together):
    """Return the spec of a topic that does not exist yet, and the coordinators of its transactions and of its ledger.

    With ``together``, both are the same node, otherwise two different nodes.
    """
    for _ in range(200):
        spec = spec_of(cluster.bootstrap, f"t-{os.urandom(4).hex()}", request_seconds=REQUEST_SECONDS)
        transactions = internal_leader(cluster.bootstrap, "__transaction_state", spec.id_of_partition(0, None))
        ledger = internal_leader(cluster.bootstrap, "__consumer_offsets", spec.group(JOB))
        if (transactions == ledger) == together:
            return spec, transactions, ledger
    pytest.fail("no group name has a suitable coordinator; check that the leaders of the internal topics are spread")


def controller_of(cluster):
    """Return the node that leads the quorum of controllers, as node 1 last recorded it."""
    [found] = cluster.folder.glob("node-1/**/__cluster_metadata-0/quorum-state")
    return json.loads(found.read_text())["leaderId"]


def all_well(cluster):
    everyone = frozenset(node.id for node in cluster.nodes)
    for node in cluster.nodes:
        node.wait_until_alive(everyone)


def coordinators_are_spread(cluster):
    """Elect the preferred leaders, and return whether all nodes know them for the partitions of the internal topics.

    A node that was down leads nothing when it is back. It is elected only after it is in sync.
    """
    admin = admin_of(cluster.bootstrap)  # its futures fail after it is garbage-collected
    admin.elect_leaders(ElectionType.PREFERRED).result(SECONDS)
    known = [node.known().topics for node in cluster.nodes]
    internal = [topics.get(name) for topics in known for name in ("__transaction_state", "__consumer_offsets")]
    return all(topic and all(each.leader == each.replicas[0] for each in topic.values()) for topic in internal)


@pytest.fixture
def ready(cluster):
    """The cluster with its internal topics, each partition led by its first replica.

    After the test, the fixture restarts or resumes all nodes.
    """
    all_well(cluster)
    spec = spec_of(cluster.bootstrap, f"t-{os.urandom(4).hex()}")
    topic_on(cluster, spec.topic, [1, 2, 3])
    with KafkaLog(spec) as log:
        planned_writer(log).must_append("a")
    wait_until(lambda: coordinators_are_spread(cluster), SECONDS, lambda: "a coordinator is not its first replica")
    yield cluster
    for node in cluster.nodes:
        if node.is_running:
            node.thaw()
        else:
            node.restart()
    all_well(cluster)


def told_at_last(spec, job, values):
    """Append a writer's next chunk with new clients until the remaining brokers report its outcome. Return it."""
    deadline = time.monotonic() + SECONDS
    while True:
        with KafkaLog(spec) as job._log:
            try:
                outcome = job.append(table_of(values))
            except StorageError:
                outcome = Unknown("raised as an error")
        if not isinstance(outcome, Unknown) or time.monotonic() > deadline:
            return outcome


def before_commit(monkeypatch, number, strike):
    """Call ``strike`` once, before the ``number``th commit of a transaction."""
    commit, seen = TransactionalProducer.commit, []

    def struck(producer):
        seen.append(producer)
        if len(seen) == number:
            strike()
        commit(producer)

    monkeypatch.setattr(TransactionalProducer, "commit", struck)


@pytest.mark.parametrize(
    ("fault", "role"),
    [
        ("kill", "leader"),
        pytest.param("kill", "transactions", marks=pytest.mark.full),
        pytest.param("kill", "ledger", marks=pytest.mark.full),
        pytest.param("freeze", "leader", marks=pytest.mark.full),
    ],
)
def test_a_load_gets_over_the_loss_of_a_node(ready, monkeypatch, fault, role):
    spec, transactions, ledger = placed(ready, together=False)
    [leader] = NODES - {transactions, ledger}
    topic_on(ready, spec.topic, [leader, transactions, ledger])
    node = ready.node({"leader": leader, "transactions": transactions, "ledger": ledger}[role])
    struck = []

    def strike():
        struck.append(node.id)
        getattr(node, fault)()

    # The first commit records the plan, so the third one is that of the second chunk.
    before_commit(monkeypatch, 3, strike)
    run_as_spark_does(spec, ROWS)
    assert struck == [node.id]
    if fault == "freeze":
        node.thaw()
    assert committed_values(ready.bootstrap, spec.topic) == ROWS[0]


@pytest.mark.parametrize("role", ["leader", "transactions", *full("ledger", "controller")])
def test_one_attempt_survives_a_suspended_node(ready, monkeypatch, role):
    spec, transactions, ledger = placed(ready, together=False)
    [leader] = NODES - {transactions, ledger}
    topic_on(ready, spec.topic, [leader, transactions, ledger])
    roles = {"leader": leader, "transactions": transactions, "ledger": ledger, "controller": controller_of(ready)}
    node, threads = ready.node(roles[role]), list[Thread]()
    before_commit(monkeypatch, 3, for_a_while(node.freeze, node.thaw, STANDS_STILL_SECONDS, threads))
    try:
        run_once(spec, ROWS)
    finally:
        for thread in threads:
            thread.join()
    assert threads
    assert committed_values(ready.bootstrap, spec.topic) == ROWS[0]


def test_below_min_insync_nothing_is_acknowledged_until_the_others_are_back(ready):
    spec, transactions, _ = placed(ready, together=True)
    topic_on(ready, spec.topic, [transactions, *(NODES - {transactions})])
    hasty = spec_of(ready.bootstrap, spec.topic, request_seconds=REQUEST_SECONDS, message_timeout_ms="12000")
    hasty = replace(hasty, open_transaction_wait_ms=6_000, transaction_timeout_ms=6_000)
    with KafkaLog(hasty) as log:
        job = planned_writer(log)
        job.must_append(*"ab")
        for node in NODES - {transactions}:
            ready.node(node).freeze()
        began = time.monotonic()
        try:
            outcome = job.append(table_of("xyz"))
        except StorageError:
            outcome = Unknown("raised as an error")
        finally:
            for node in NODES - {transactions}:
                ready.node(node).thaw()
        assert time.monotonic() - began < 60
    assert isinstance(outcome, Unknown), outcome
    all_well(ready)
    require_truth(spec, outcome, "ab", "xyz")
    run_as_spark_does(spec, {0: [*"ab", *"xyz", *"uvw"]})
    assert committed_values(ready.bootstrap, spec.topic) == [*"abxyzuvw"]


def test_records_lost_in_an_unclean_election_are_reported(ready):
    spec, transactions, _ = placed(ready, together=True)
    leader, stale = NODES - {transactions}
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic_on(ready, spec.topic, [leader, stale], **unclean)
    with KafkaLog(spec) as log:
        job = planned_writer(log)
        job.must_append(*"ab")
    ready.node(stale).kill()
    wait_until(lambda: in_sync(ready.bootstrap, spec.topic) == [leader], SECONDS, lambda: "still in sync")
    assert isinstance(told_at_last(spec, job, "cd"), Appended)
    ready.node(leader).kill()
    ready.node(stale).restart()
    wait_until(lambda: in_sync(ready.bootstrap, spec.topic) == [stale], SECONDS, lambda: "not elected")
    assert committed_values(ready.bootstrap, spec.topic) == [*"ab"]
    outcome = told_at_last(spec, job, "xyz")
    assert isinstance(outcome, Truncated), outcome
    assert outcome.actual < outcome.expected == 6
    with pytest.raises(TruncatedError):
        run_as_spark_does(spec, {0: [*"abcdxyz"]})
    assert committed_values(ready.bootstrap, spec.topic) == [*"ab"]


def test_stale_coordinator_gives_no_claim_old_progress(ready):
    """When the broker resumes, it answers the requests that it received while it was frozen.

    The job expects no offset, so only its ledger entry shows the rows that it appended.
    """
    topic = create_topic(ready.bootstrap)
    spec = spec_of(ready.bootstrap, topic, request_seconds=10)
    deposed = internal_leader(ready.bootstrap, "__consumer_offsets", spec.group(JOB))
    others = ",".join(node.address for node in ready.nodes if node.id != deposed)

    def has_moved():
        return internal_leader(others, "__consumer_offsets", spec.group(JOB)) not in {-1, deposed}

    with KafkaLog(spec) as log:
        plan = pin_plan(log, JOB, ExpectedOffsets("none"))
        JobWriter(log, plan).must_append("a")
        log.progress(0, JOB)
        ready.node(deposed).freeze()
        try:
            wait_until(has_moved, SECONDS, lambda: "the group has no new coordinator")
            with KafkaLog(spec_of(others, topic, request_seconds=10)) as elsewhere:
                JobWriter(elsewhere, plan).must_append("b")
            with ThreadPoolExecutor(1) as threads:
                claim = threads.submit(log.claim, 0, plan)
                time.sleep(_ASKED_SECONDS)
                ready.node(deposed).thaw()
                claimed = claim.result(SECONDS)
        finally:
            ready.node(deposed).thaw()
        assert isinstance(claimed, Claim)
        assert claimed.progress is not None
        assert claimed.progress.rows == 2
    assert committed_values(ready.bootstrap, topic) == ["a", "b"]


@pytest.mark.full  # test_outdated.py returns old end offsets through a proxy
def test_stale_leader_does_not_report_end_offset(ready):
    """When the broker resumes, it answers the requests that it received while it was frozen."""
    topic = create_topic(ready.bootstrap)
    deposed = leader_of(ready.bootstrap, topic, 0)
    others = ",".join(node.address for node in ready.nodes if node.id != deposed)
    with KafkaLog(spec_of(ready.bootstrap, topic, request_seconds=10)) as log:
        assert log.bounds(0).end_offset == 0
        ready.node(deposed).freeze()
        try:
            wait_until(lambda: leader_of(others, topic, 0) not in {-1, deposed}, SECONDS, lambda: "no new leader")
            with KafkaLog(spec_of(others, topic, request_seconds=10)) as elsewhere:
                seen = planned_writer(elsewhere).must_append("a").range.end_offset
            with ThreadPoolExecutor(1) as threads:
                bounds = threads.submit(log.bounds, 0)
                time.sleep(_ASKED_SECONDS)
                ready.node(deposed).thaw()
                assert bounds.result(SECONDS).end_offset >= seen
        finally:
            ready.node(deposed).thaw()


@pytest.mark.full  # test_outdated.py delays this response in a proxy
def test_broker_stalled_before_the_registry_hides_no_plan(ready):
    """When the broker resumes, it answers the earlier request: there is no such topic."""
    topic = create_topic(ready.bootstrap)
    slept = next(iter(NODES - {controller_of(ready)}))
    others = ",".join(node.address for node in ready.nodes if node.id != slept)
    ready.node(slept).freeze()
    try:
        with KafkaLog(replace(spec_of(others, topic, request_seconds=10), prefix=topic)) as elsewhere:
            plan = pin_plan(elsewhere, JOB, ExpectedOffsets("none"))
        asleep = replace(spec_of(ready.node(slept).address, topic, request_seconds=10), prefix=topic)
        with KafkaLog(asleep) as log, ThreadPoolExecutor(1) as threads:
            found = threads.submit(log.plan, JOB)
            time.sleep(_ASKED_SECONDS)
            ready.node(slept).thaw()
            assert found.result(SECONDS) == plan
    finally:
        ready.node(slept).thaw()
