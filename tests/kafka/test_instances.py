"""The requests of a writer besides its records, and side effects that they must not have."""

import gc
import logging
import time
from dataclasses import replace
from threading import Event, Lock
from threading import enumerate as enumerate_threads
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from spark_cas.core.claim import Claim
from spark_cas.core.errors import ConditionalLogError, LogNotFoundError, StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, Conflict, Fenced, LayoutChanged
from spark_cas.log.kafka import KafkaLog, kafka_log
from spark_cas.log.kafka.accelerators import connections
from spark_cas.log.kafka.accelerators.array_producer import ArrayProducer
from spark_cas.log.kafka.append import fence, transaction
from spark_cas.log.kafka.append.checks import Checks
from spark_cas.log.kafka.append.fence import Fence
from spark_cas.log.kafka.append.writer import PartitionWriter
from spark_cas.log.kafka.client.clients import TransactionalProducer, admin_client
from spark_cas.log.kafka.client.clients import fence as take_over_ids
from spark_cas.log.kafka.registry import layouts
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import require_planned
from spark_cas.log.load.append_once import append_once
from spark_cas.log.load.planning import pin_plan
from spark_cas.log.log_lines import log_unused
from tests.kafka.clients import SECONDS, admin_of, create_topic
from tests.kafka.faulted import spec_of
from tests.support.writing import JobWriter, append_foreign, table_of, values_in
from tools.kafka_broker import KafkaBroker
from tools.kafka_broker.waiting import wait_until
from tools.ports import held_ports

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_claim_and_the_chunks_after_it_take_one_instance(broker, topic, monkeypatch, chunks):
    init, taken = TransactionalProducer.init, []

    def counted(instance, timeout_seconds):
        taken.append(instance)
        init(instance, timeout_seconds)

    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        plan = pin_plan(log, "job", ExpectedOffsets("end"))
        monkeypatch.setattr(TransactionalProducer, "init", counted)
        job = JobWriter(log, plan)
        outcomes = [job.append(table_of([f"{number}"])) for number in range(chunks)]
    assert [type(outcome) for outcome in outcomes] == [Appended] * chunks
    assert len(taken) == 1


@pytest.fixture
def untested_library(monkeypatch):
    """A version of librdkafka whose log lines are not known."""
    monkeypatch.setattr(connections, "libversion", lambda: ("9.9.9", 0))
    connections.can_follow.cache_clear()
    log_unused.cache_clear()
    yield
    connections.can_follow.cache_clear()


@pytest.mark.usefixtures("untested_library")
def test_untested_librdkafka_gets_a_new_instance_for_each_chunk(broker, topic, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="spark_cas")
    init, made = TransactionalProducer.init, []

    def counted(instance, timeout_seconds):
        made.append(instance)
        init(instance, timeout_seconds)
        assert not instance._connections.up

    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        plan = pin_plan(log, "job", ExpectedOffsets("end"))
        monkeypatch.setattr(TransactionalProducer, "init", counted)
        job = JobWriter(log, plan)
        for value in "abc":
            job.must_append(value)
        assert values_in(log, 0) == ["a", "b", "c"]
    assert len({*made}) == len(made) == 1 + 3  # the claim has its own
    assert [line.partition(":")[0] for line in caplog.messages if "librdkafka 9.9.9" in line] == ["connections"]


def test_log_keeps_few_instances_and_works_without_one(broker, monkeypatch):
    """Each of the twelve jobs writes under its own id, because it expects no offset."""
    topic, most, alive = create_topic(broker.bootstrap), [], set()
    init, close = TransactionalProducer.init, TransactionalProducer.close

    def begun(instance, timeout_seconds):
        alive.add(instance)
        most.append(len(alive))
        init(instance, timeout_seconds)

    def ended(instance):
        alive.remove(instance)
        close(instance)

    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        plans = [pin_plan(log, f"job-{number}", ExpectedOffsets("none")) for number in range(12)]
        monkeypatch.setattr(TransactionalProducer, "init", begun)
        monkeypatch.setattr(TransactionalProducer, "close", ended)
        jobs = [JobWriter(log, plan) for plan in plans]
        expected = []
        for number in range(3):
            for job in jobs:
                expected.append(f"{job.claim.plan.job}/{number}")
                assert isinstance(job.append(table_of([expected[-1]]), complete=number == 2), Appended)
        assert max(most) == 8
        assert not alive
        assert values_in(log, 0) == expected


def test_writer_without_its_instance_appends_unless_overtaken(broker):
    topic = create_topic(broker.bootstrap, 12)
    spec = KafkaSpec(broker.bootstrap, topic, topic)
    with KafkaLog(spec) as log, KafkaLog(spec) as other:
        plan = pin_plan(log, "job", ExpectedOffsets("none"))
        jobs = [JobWriter(log, plan, partition) for partition in range(12)]
        assert isinstance(JobWriter(other, plan, task="run/0-newer").append(table_of(["theirs"])), Appended)
        outcomes = [job.append(table_of([f"{partition}"])) for partition, job in enumerate(jobs)]
        assert outcomes[0] == Fenced("run/0-newer")
        assert [type(outcome) for outcome in outcomes[1:]] == [Appended] * 11
        assert [values_in(log, partition) for partition in range(3)] == [["theirs"], ["1"], ["2"]]


@pytest.mark.parametrize("expected", ["none", "end"])
def test_log_keeps_few_writers_and_appends_without_one(broker, topic, monkeypatch, expected):
    monkeypatch.setattr(kafka_log, "_MOST_WRITERS", 2)
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        for number in range(4):
            append_once(log, 0, table_of([f"{number}"]), job=f"once-{number}", expected_offset=None)
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, PartitionWriter | Fence)]
        assert len([each for each in kept if each._spec.topic == topic]) == 2 + 2
        jobs = [JobWriter(log, pin_plan(log, f"job-{number}", ExpectedOffsets(expected))) for number in range(4)]
        first = jobs[0].claim
        jobs[0].must_append("a")
        jobs[1].append(table_of(["b"]))
        jobs[2].append(table_of(["b"]))
        outcomes = [job.append(table_of(["c"])) for job in jobs]
        assert log.append(first, jobs[0].chunk(table_of(["a"]))) == Fenced("run/0")
        is_checked = expected == "end"
        assert [type(each) for each in outcomes] == [Appended, *[Conflict if is_checked else Appended] * 3]
        assert values_in(log, 0) == [*("0123ac" if is_checked else "0123abbcccc")]


def test_coordinator_is_requested_after_a_broker_is_connected(broker, topic, monkeypatch):
    """If no broker is connected, the client searches again only after half a second."""
    found = []

    ask = ArrayProducer.init_transactions

    def noting(client, seconds):
        found.append(client._logger.up)
        ask(client, seconds)

    monkeypatch.setattr(ArrayProducer, "init_transactions", noting)
    for number in range(20):
        instance = TransactionalProducer(KafkaSpec(broker.bootstrap, topic), f"{topic}/{number}")
        instance.init(SECONDS)
        instance.close()
    assert len(found) >= 20
    assert {*found} == {True}


def test_claim_connects_during_its_checks(broker, topic, monkeypatch):
    make, connect, changed = TransactionalProducer.__init__, TransactionalProducer._connect, Checks.changed
    made, connected, up = [], Event(), []

    def making(instance, *given):
        made.append(instance)
        make(instance, *given)

    def noting(instance, *given):
        connect(instance, *given)
        connected.set()

    def waiting(checks, *given):
        assert connected.wait(SECONDS)
        up.append(made[0]._connections.up)
        return changed(checks, *given)

    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        plan = pin_plan(log, "job", ExpectedOffsets("end"))
        monkeypatch.setattr(TransactionalProducer, "__init__", making)
        monkeypatch.setattr(TransactionalProducer, "_connect", noting)
        monkeypatch.setattr(Checks, "changed", waiting)
        assert isinstance(JobWriter(log, plan).append(table_of(["a"])), Appended)
    assert up[0]
    assert len(made) == 1


def test_an_instance_is_connected_by_one_thread_at_a_time(broker, topic, monkeypatch):
    connect, at_work, together = TransactionalProducer._connect, Lock(), []

    def slowly(instance, *given):
        together.append(not at_work.acquire(blocking=False))
        time.sleep(0.2)
        connect(instance, *given)
        at_work.release()

    monkeypatch.setattr(TransactionalProducer, "_connect", slowly)
    instance = TransactionalProducer(KafkaSpec(broker.bootstrap, topic), topic)
    instance.approach()
    instance.init(SECONDS)
    instance.close()
    assert together == [False, False]


def test_claim_of_an_unknown_topic_requests_it_again(broker, topic, monkeypatch):
    def unknown(*_):
        monkeypatch.undo()
        raise LogNotFoundError("not yet")

    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        plan = pin_plan(log, "job", ExpectedOffsets("end"))
        monkeypatch.setattr(fence, "recent_settings", unknown)
        assert isinstance(JobWriter(log, plan).append(table_of(["a"])), Appended)


def test_a_claim_that_is_refused_leaves_an_earlier_one_as_it_was(broker, topic, monkeypatch):
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        plan = pin_plan(log, "job", ExpectedOffsets("end"))
        job = JobWriter(log, plan)
        job.must_append("a")
        with monkeypatch.context() as patched:
            patched.setattr(Checks, "changed", lambda *_: LayoutChanged(1, 2))
            assert log.claim(0, plan) == LayoutChanged(1, 2)
        job.must_append("b")
        assert values_in(log, 0) == ["a", "b"]


def test_an_instance_that_is_let_go_of_connects_no_longer():
    """No broker listens there, so the client would try for a large part of the request timeout."""
    before = {*enumerate_threads()}
    with held_ports(1) as [port]:
        instance = TransactionalProducer(KafkaSpec(f"127.0.0.1:{port}", "topic"), "id")
        instance.approach()
        instance.close()
        wait_until(lambda: before.issuperset(enumerate_threads()), 2, lambda: "it goes on")


def test_useless_claim_fences_no_writer_and_keeps_no_instance(broker, topic, monkeypatch):
    make, close, alive, fencing = TransactionalProducer.__init__, TransactionalProducer.close, set(), []

    def begun(instance, *given):
        alive.add(instance)
        make(instance, *given)

    def ended(instance):
        alive.remove(instance)
        close(instance)

    spec = KafkaSpec(broker.bootstrap, topic, topic)
    with KafkaLog(spec) as log:
        late, void = (pin_plan(log, each, ExpectedOffsets("end")) for each in ("late", "void"))
        append_foreign(log, 0, "x")
        monkeypatch.setattr(TransactionalProducer, "__init__", begun)
        monkeypatch.setattr(TransactionalProducer, "close", ended)
        monkeypatch.setattr(TransactionalProducer, "init", lambda *_: fencing.append(1))
        claim = log.claim(0, late)
        assert isinstance(claim, Claim)
        assert claim.expected_offset == 0
        assert alive == set()
        monkeypatch.setattr(Checks, "changed", lambda *_: LayoutChanged(1, 2))
        assert log.claim(0, void) == LayoutChanged(1, 2)
        assert alive == set()
    assert fencing == []


def test_claim_requests_its_topic_unless_cached_and_append_always(broker, topic, monkeypatch, set_timing):
    asked: list[str] = []
    fencing: list[int] = []
    own = TransactionalProducer.describe

    def asking(asker, *given):
        asked.append("any broker")
        return require_planned(asker, *given)

    def asking_one(instance):
        asked.append("the broker of the records")
        return own(instance)

    for each in (layouts, transaction):
        monkeypatch.setattr(each, "require_planned", asking)
    monkeypatch.setattr(TransactionalProducer, "describe", asking_one)
    set_timing(fresh_age=60.0)
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        plan = pin_plan(log, "job", ExpectedOffsets("end"))
        job = JobWriter(log, plan)
        assert asked == []
        job.must_append("a")
        assert asked == ["the broker of the records"]
        set_timing(fresh_age=0.0)
        assert isinstance(log.claim(0, plan), Claim)
        assert asked == ["the broker of the records", "any broker", "any broker"]
        set_timing(fresh_age=60.0)
        monkeypatch.setattr(TransactionalProducer, "init", lambda *_: fencing.append(1))
        assert log.claim(0, replace(plan, layout_epoch=2)) == LayoutChanged(2, 1)
        assert fencing == []


def test_next_claim_uses_the_topic_metadata_of_an_append(broker, topic, monkeypatch):
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        plan = pin_plan(log, "job", ExpectedOffsets("end"))
        job = JobWriter(log, plan)
        job.must_append("a")
        monkeypatch.setattr(log._admin, "_topics", {})
        job.must_append("b")
        assert log._admin.cached_topic(topic) == (plan.log_id, 1)


@pytest.mark.parametrize(
    ("told", "becomes"),
    [
        (KafkaError._TIMED_OUT, LayoutChanged(1, 2)),
        (KafkaError._ALL_BROKERS_DOWN, (2, 0)),
        (("another", 1), (2, 1)),
        (0, LayoutChanged(1, 2)),
        (2, LayoutChanged(1, 2)),
    ],
)
def test_topic_id_is_requested_from_the_broker_of_the_records(broker, topic, monkeypatch, told, becomes):
    """Other brokers may have stale metadata. A pair in ``becomes`` holds the attempts and the aborted rows."""
    own = TransactionalProducer.describe

    def once(instance):
        if told in (KafkaError._TIMED_OUT, 0):
            monkeypatch.setattr(transaction, "require_planned", lambda *_: SimpleNamespace(partitions=[0, 1]))
        monkeypatch.setattr(TransactionalProducer, "describe", own)
        if isinstance(told, int) and told < 0:
            monkeypatch.setattr(instance._connections, "stranded", told == KafkaError._ALL_BROKERS_DOWN)
            raise KafkaException(KafkaError(told))
        return (plan.log_id, told) if isinstance(told, int) else told

    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        plan = pin_plan(log, "job", ExpectedOffsets("end"))
        job = JobWriter(log, plan)
        monkeypatch.setattr(TransactionalProducer, "describe", once)
        outcome = job.append(table_of("a"))
        counted = (outcome.attempts, outcome.aborted_rows) if isinstance(outcome, Appended) else outcome
        assert counted == becomes
        assert values_in(log, 0) == ([] if isinstance(becomes, LayoutChanged) else ["a"])


def test_nothing_is_known_of_a_topic_that_is_gone(broker, topic, set_timing):
    set_timing(fresh_age=60.0)
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        log_id = log.layout().log_id
        log._admin.client.delete_topics([topic])[topic].result(SECONDS)
        with pytest.raises(LogNotFoundError):
            wait_until(lambda: log.layout().partitions == 0, SECONDS, lambda: "the topic still exists")
        with pytest.raises(LogNotFoundError):
            log.has_id(log_id)


def test_an_attempt_that_was_overtaken_before_its_fence_stays_refused(broker, topic, monkeypatch):
    """The producer instance is unused, but the claim has read the ledger before the instance was initialized."""
    put_up = Fence.put_up
    spec = KafkaSpec(broker.bootstrap, topic, topic)
    with KafkaLog(spec) as first, KafkaLog(spec) as second:
        plan = pin_plan(first, "job", ExpectedOffsets("none"))
        job = JobWriter(first, plan)
        chunk = job.chunk(table_of(["a"]))

        def overtaken(fence):
            monkeypatch.setattr(Fence, "put_up", put_up)
            assert isinstance(first.append(job.claim, chunk), Appended)
            put_up(fence)

        monkeypatch.setattr(Fence, "put_up", overtaken)
        assert [second.append(job.claim, chunk) for _ in range(2)] == [Fenced("run/0")] * 2
        assert values_in(first, 0) == ["a"]


def test_request_does_not_recreate_a_deleted_topic(conf):
    """The brokers create a topic when a client requests its metadata, which is Kafka's default."""
    with KafkaBroker(conf, settings={"auto.create.topics.enable": "true"}) as broker:
        topic = create_topic(broker.bootstrap)
        spec = spec_of(broker.bootstrap, topic)
        with KafkaLog(spec) as log:
            job = JobWriter(log, pin_plan(log, "job", ExpectedOffsets("end")))
            assert isinstance(job.append(table_of(["a"])), Appended)
            admin = admin_of(broker.bootstrap)
            admin.delete_topics([topic])[topic].result(SECONDS)
            with pytest.raises(ConditionalLogError):
                job.append(table_of(["b"]))
            with pytest.raises(ConditionalLogError):
                log.bounds(0)
            admin_client(spec).client.list_topics(topic, SECONDS)
            TransactionalProducer(spec, f"{topic}/new").init(SECONDS)
            # The brokers create a topic for the request of another client. After that, they would have created the
            # deleted one.
            wait_until(
                lambda: "asked-for" in topics_after_asking(broker.bootstrap), SECONDS, lambda: "no topic was created"
            )
            assert topic not in admin.list_topics(timeout=SECONDS).topics


def topics_after_asking(address):
    """Request the metadata of a topic as any other client does, and return the topics that exist then."""
    client = Producer({"bootstrap.servers": address})
    client.list_topics("asked-for", SECONDS)
    return client.list_topics(timeout=SECONDS).topics


def test_a_user_may_say_how_long_a_client_waits_to_connect_again(broker, topic):
    spec = KafkaSpec(broker.bootstrap, topic, client_options=(("reconnect.backoff.max.ms", "10"),))
    with KafkaLog(spec) as log:
        assert log.layout().partitions == 1


def test_ledger_entry_that_arrives_during_a_read_is_used(broker, topic, monkeypatch):
    """Without a ledger entry, new records may be the job's own. So the writer reads the ledger after the check."""
    spec = KafkaSpec(broker.bootstrap, topic, topic)
    with KafkaLog(spec) as log, KafkaLog(spec) as other:
        plan = replace(pin_plan(log, "job", ExpectedOffsets("none")), rejoined=True)
        attempt = JobWriter(other, plan)
        append_foreign(log, 0, "x")
        look = Checks.check_offset

        def overtaken(checks, *asked):
            monkeypatch.undo()
            refusal = look(checks, *asked)
            attempt.must_append("a")
            return refusal

        monkeypatch.setattr(Checks, "check_offset", overtaken)
        checks = Checks(log._clients, log._layouts, plan, TopicPartition(topic, 0))
        progress, lost = checks.forgotten(None, log.bounds(0).end_offset)
    assert progress is not None
    assert progress.rows == 1
    assert not lost


def test_takeover_of_many_ids_ends_at_the_first_permanent_error(broker, topic, monkeypatch):
    requested = []

    def denied(instance, _timeout_seconds):
        requested.append(instance)
        time.sleep(0.1)
        raise KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))

    monkeypatch.setattr(TransactionalProducer, "init", denied)
    with pytest.raises(StorageError):
        take_over_ids(KafkaSpec(broker.bootstrap, topic), [f"id-{number}" for number in range(100)])
    assert len(requested) < 50
