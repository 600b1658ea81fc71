"""The clients that successive logs of a process share, and the cases in which they do not."""

import os
import signal
import sys
import time
from dataclasses import replace
from importlib.machinery import ModuleSpec

import pytest
from confluent_kafka.admin import NewTopic

from spark_cas.core.errors import ConflictError, LogNotFoundError, StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Appended
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client import kept_clients
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.planning import pin_plan
from spark_cas.log.open import open_spec
from spark_cas.options.parse import parse_read
from spark_cas.spark.accelerators import freezing
from spark_cas.spark.reading.selected_logs import SelectedLogs
from tests.kafka.clients import SECONDS, admin_of, configure, create_topic
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault
from tests.support.writing import JobWriter, plan_of, table_of, values_in
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

STILL_SECONDS = 0.3
NOTHING_NAMED = ExpectedOffsets("latest")
API_VERSIONS = 18
"""The API of the first request of a client on each connection."""


@pytest.fixture(autouse=True)
def _none_at_rest():
    yield
    while kept_clients._idle:
        kept_clients._idle.popitem()[1][1].close()


def pooled(spec: KafkaSpec) -> KafkaLog:
    log = open_spec(spec, pooled=True)
    assert isinstance(log, KafkaLog)
    return log


def is_another(log, log_id):
    try:
        return log.layout().log_id != log_id
    except LogNotFoundError:
        return False


def look(log, job="job"):
    """Send a request with each client: about the topic, a group and the registry."""
    return log.bounds_of([0], waiting=True), log.progress_of([0], job), log.plan(job)


def test_next_log_of_the_same_brokers_opens_no_connection(proxied):
    first, second = (KafkaSpec(proxied.bootstrap, create_topic(proxied.direct), "team") for _ in range(2))
    with pooled(first) as log:
        look(log)
        JobWriter(log, plan_of(log, "job")).must_append("a")
    connecting = proxied.proxy.add(Fault.WATCH, API_VERSIONS, times=None)
    with pooled(second) as log:
        assert look(log) == ((Bounds(0, 0),), (None,), None)
    with pooled(first) as log:
        assert look(log)[0] == log.bounds_of([0], waiting=True)
    assert not connecting.reached.has_come
    with KafkaLog(second) as log:
        look(log)
    assert connecting.reached.has_come


def test_logs_that_are_open_at_once_have_clients_of_their_own(broker, topic):
    spec = KafkaSpec(broker.bootstrap, topic)
    with pooled(spec) as log, pooled(spec) as other:
        assert log._clients is not other._clients
        assert look(log) == look(other)
    assert len(kept_clients._idle) == 1


def test_other_settings_and_brokers_have_clients_of_their_own(broker, topic):
    specs = [KafkaSpec(broker.bootstrap, topic, prefix) for prefix in ("a", "b", "c")]
    sets = []
    for spec in specs:
        with pooled(spec) as log:
            sets.append(log._clients)
    assert len({id(each) for each in sets}) == 3
    assert [each for _, each in kept_clients._idle.values()] == sets[1:]  # the oldest set was closed


def test_after_an_error_the_next_log_begins_with_new_ones(broker, topic):
    spec = KafkaSpec(broker.bootstrap, topic)
    with pytest.raises(ConflictError), pooled(spec):
        raise ConflictError("some conflict")
    assert kept_clients._idle == {}


def test_those_that_rested_for_long_are_not_used(broker, topic, set_timing):
    spec = KafkaSpec(broker.bootstrap, topic)
    with pooled(spec) as log:
        before = log._clients
    set_timing(cached_age=-1.0)
    with pooled(spec) as log:
        assert log._clients is not before
        look(log)


def test_those_that_are_old_are_let_go_of_however_busy(broker, topic, set_timing):
    set_timing(client_age=-1.0)
    with pooled(KafkaSpec(broker.bootstrap, topic)) as log:
        look(log)
    assert kept_clients._idle == {}


def test_those_of_other_brokers_that_rested_for_long_are_let_go_of(broker, topic, set_timing):
    with pooled(KafkaSpec(broker.bootstrap, topic, "a")):
        pass
    set_timing(cached_age=-1.0)
    with pooled(KafkaSpec(broker.bootstrap, topic, "b")):
        assert kept_clients._idle == {}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 warns about forks with threads
def test_those_of_the_process_before_a_fork_are_left_alone(broker, topic):
    """Their threads do not exist in the child, so a call to close them would hang there."""
    specs = [KafkaSpec(broker.bootstrap, topic, prefix) for prefix in ("a", "b")]
    for spec in specs:
        with pooled(spec) as log:
            look(log)
    held = list(kept_clients._idle.values())
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a handler in Python would wait for the hanging call
        signal.alarm(20)
        taken = ClientSet.borrow(specs[0])
        taken.release()
        os._exit(0 if taken not in [each for _, each in held] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(kept_clients._idle.values()) == held


def topics_at_rest(clients):
    return [topic for topic, _, _ in clients.readers._idle]


def test_readers_of_the_last_few_topics_are_pooled(broker):
    topics = [create_topic(broker.bootstrap) for _ in range(6)]
    for topic in topics:
        with pooled(KafkaSpec(broker.bootstrap, topic, "team")) as log:
            log.layout()
            JobWriter(log, plan_of(log, "job")).must_append("a")
            assert values_in(log, 0) == ["a"]
            clients = log._clients
    assert [each for each in topics_at_rest(clients) if each in topics] == topics[-4:]


def test_readers_of_an_unidentified_topic_close_with_its_log(broker, topic):
    with pooled(KafkaSpec(broker.bootstrap, topic, "team")) as log:
        JobWriter(log, plan_of(log, "job")).must_append("a")
        log._readers._ids.clear()
        assert values_in(log, 0) == ["a"]
        clients = log._clients
        assert topic in topics_at_rest(clients)
    assert topic not in topics_at_rest(clients)


def test_a_reader_serves_the_next_log_of_the_same_topic_alone(broker, topic):
    spec = KafkaSpec(broker.bootstrap, topic, "team")
    with pooled(spec) as log:
        log.layout()
        JobWriter(log, plan_of(log, "job")).must_append("a")
        assert values_in(log, 0) == ["a"]
        (key,) = [each for each in log._readers._idle if each[0] == topic]
        rested = log._readers._idle[key]
    _, log_id, scanning = key
    with pooled(spec) as log:
        for known_as, same in [(None, False), ("another", False), (log_id, True)]:
            if known_as is not None:
                log._readers.identify(topic, known_as)
            with log._readers.borrow(topic, scanning=scanning) as consumer:
                assert (consumer is rested) is same


def test_after_an_error_the_planner_of_a_read_begins_with_new_ones(broker, topic, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    monkeypatch.setattr(freezing, "_freeze_once", lambda _: None)
    selection = parse_read({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}).selection
    with SelectedLogs(selection) as logs:
        logs.read(waiting=False)
    assert len(kept_clients._idle) == 1
    nowhere = parse_read({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "nowhere"}).selection
    with pytest.raises(LogNotFoundError), SelectedLogs(nowhere) as logs:
        logs.read(waiting=False)
    assert kept_clients._idle == {}


def test_a_topic_that_was_recreated_meanwhile_is_read_and_written_as_the_new_one(broker):
    topic = create_topic(broker.bootstrap, 3)
    spec = KafkaSpec(broker.bootstrap, topic)
    with pooled(spec) as log:
        gone = log.layout().log_id
        JobWriter(log, plan_of(log, f"{topic}-1")).must_append("a", "b")
        assert values_in(log, 0) == ["a", "b"]
    admin = admin_of(broker.bootstrap)
    admin.delete_topics([topic])[topic].result(SECONDS)
    wait_until(
        lambda: topic not in admin.list_topics(timeout=SECONDS).topics, SECONDS, lambda: "the topic still exists"
    )
    admin.create_topics([NewTopic(topic, 1)])[topic].result(SECONDS)
    with pooled(spec) as log:
        wait_until(lambda: is_another(log, gone), SECONDS, lambda: "the new topic is not reported")
        assert log.bounds(0) == Bounds(0, 0)
        JobWriter(log, plan_of(log, f"{topic}-2")).must_append("c")
        assert values_in(log, 0) == ["c"]
        with pytest.raises(ValueError, match="partition 2"):
            values_in(log, 2)


def test_logs_that_share_clients_try_a_transaction_once(proxied):
    spec = KafkaSpec(proxied.bootstrap, create_topic(proxied.direct), "team")
    with pooled(spec) as log:
        found = log.preflight()
    tried = proxied.proxy.add(Fault.WATCH, Api.INIT_PRODUCER_ID, times=None)
    with pooled(spec.of_topic(create_topic(proxied.direct))) as log:
        assert log.preflight() == found
    assert not tried.reached.has_come
    with KafkaLog(spec) as log:
        assert log.preflight() == found
    assert tried.reached.has_come


def test_next_log_reads_only_new_registry_entries(proxied):
    spec = KafkaSpec(proxied.bootstrap, create_topic(proxied.direct), "team")
    with pooled(spec) as log:
        pin_plan(log, "job", NOTHING_NAMED)
        first = log.plan("job")
    assert first is not None
    time.sleep(STILL_SECONDS)  # a fetch may be in flight
    fetched = proxied.proxy.add(Fault.WATCH, Api.FETCH, times=None)
    with pooled(spec) as log:
        assert log.plan("job") == first
        assert not fetched.reached.has_come
    with KafkaLog(replace(spec, bootstrap_servers=proxied.direct)) as another:
        another.forget(first)
        pin_plan(another, "job", NOTHING_NAMED)
        second = another.plan("job")
    with pooled(spec) as log:
        assert log.plan("job") == second != first
    assert fetched.reached.has_come


def test_claims_that_share_clients_request_topic_settings_once(proxied):
    spec = KafkaSpec(proxied.bootstrap, create_topic(proxied.direct), "team")
    with pooled(spec) as log:
        plan = plan_of(log, "job")
        log.claim(0, plan)
    asked = proxied.proxy.add(Fault.WATCH, Api.DESCRIBE_CONFIGS, times=None)
    with pooled(spec) as log:
        log.claim(0, plan)
    assert not asked.reached.has_come
    with pooled(spec.of_topic(create_topic(proxied.direct))) as log:
        log.claim(0, plan_of(log, "job"))
    assert asked.reached.has_come


@pytest.mark.parametrize("whole", [False, True])
def test_rejected_batch_discards_cached_topic_settings(broker, topic, whole):
    spec = KafkaSpec(broker.bootstrap, topic, "team")
    with pooled(spec) as log:
        log.claim(0, plan_of(log, "before"))
        configure(broker.bootstrap, topic, max_message_bytes="1000")
        refused = JobWriter(log, pin_plan(log, f"{topic}-job", NOTHING_NAMED, whole=whole))
        with pytest.raises(StorageError, match="larger than"):
            refused.append(table_of(["x" * 100] * 20))
        again = JobWriter(log, pin_plan(log, f"{topic}-again", NOTHING_NAMED, whole=whole))
        again.must_append(*["x" * 100] * 20)


def test_later_batches_request_only_the_topic_settings(proxied):
    topic = create_topic(proxied.direct)
    spec, asked = KafkaSpec(proxied.bootstrap, topic, "team"), proxied.proxy.traffic.requests
    # Only the first one requests the settings of a broker, and only later batches request those of one topic again.
    for begun, requests in [(False, 2), (True, 2), (True, 1), (False, 1)]:
        asked.clear()
        with pooled(spec) as log:
            found = log.preflight(begun=begun)
        assert asked[Api.DESCRIBE_CONFIGS] == requests
    configure(proxied.direct, topic, max_message_bytes="5000")
    with pooled(spec) as log:
        assert found.max_record_bytes != log.preflight(begun=True).max_record_bytes == 5000 - 512


@pytest.mark.full
def test_next_log_recreates_a_deleted_registry(broker, topic):
    spec = KafkaSpec(broker.bootstrap, topic, topic)
    with pooled(spec) as log:
        pin_plan(log, "job", NOTHING_NAMED)
        assert log.plan("job") is not None
    admin, names = admin_of(broker.bootstrap), [spec.registry_topic, spec.layouts_topic]
    for gone in admin.delete_topics(names).values():
        gone.result(SECONDS)
    wait_until(
        lambda: not {*names} & {*admin.list_topics(timeout=SECONDS).topics}, SECONDS, lambda: "the topic still exists"
    )
    with pooled(spec) as log:
        wait_until(lambda: log.plan("job") is None, SECONDS, lambda: "the client still reads the plan")
        assert not pin_plan(log, "job", NOTHING_NAMED).rejoined


def test_producers_are_not_pooled(broker, topic):
    spec = KafkaSpec(broker.bootstrap, topic)
    with pooled(spec) as log:
        before, claimed = log._clients, JobWriter(log, plan_of(log, topic))
        claimed.must_append("a")
        assert log._producers._with_instance
    assert not log._producers._with_instance
    with pooled(spec) as log:
        assert log._clients is before
        assert isinstance(log.append(claimed.claim, claimed.chunk(table_of(["b"]))), Appended)
