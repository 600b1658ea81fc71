"""Changes of the load lock while brokers fail or stall."""

from threading import Thread

import pytest
from confluent_kafka import KafkaError

from spark_cas.core.load_locks import LoadLock, LoadLocks
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.registry.group_metadata import KafkaLockTable
from tests.kafka.clients import create_topic
from tests.kafka.faulted import for_a_while, spec_of
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault, naming

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

REQUEST_SECONDS = 2.0


def test_failed_commit_of_a_lock_change_is_resolved(proxied, proxied_topic):
    spec = spec_of(proxied.bootstrap, proxied_topic)
    changed = LoadLocks().with_lock(LoadLock("job", "run", ((0, 1),), "", 1))
    with KafkaLog(spec) as log:
        of_load_locks = naming(spec.id_of_load_locks)
        failed = proxied.proxy.add(Fault.FAIL_RESPONSE, Api.END_TXN, where=of_load_locks, error=KafkaError.UNKNOWN)
        assert log.put_load_locks(changed)
        failed.reached.wait(0)
        assert log.load_locks() == changed
        assert not log.put_load_locks(LoadLocks(1, ())), "the change is based on old locks"


def test_lock_change_completes_after_a_stall(broker, monkeypatch):
    """The broker stalls for longer than the timeout of a request."""
    topic, threads = create_topic(broker.bootstrap), list[Thread]()
    stop = for_a_while(broker.freeze, broker.thaw, 2.5 * REQUEST_SECONDS, threads)
    read, reads = KafkaLockTable._read, []

    def read_once_it_stopped(lock_table, timeout_seconds):
        reads.append(timeout_seconds)
        if len(reads) == 1:
            stop()
        return read(lock_table, timeout_seconds)

    monkeypatch.setattr(KafkaLockTable, "_read", read_once_it_stopped)
    changed = LoadLocks().with_lock(LoadLock("job", "run", ((0, 1),), "", 1))
    with KafkaLog(spec_of(broker.bootstrap, topic, request_seconds=REQUEST_SECONDS)) as log:
        try:
            assert log.put_load_locks(changed)
        finally:
            for each in threads:
                each.join()
        assert log.load_locks() == changed
    assert len(reads) > 2
