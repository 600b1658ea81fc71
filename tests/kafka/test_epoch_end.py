"""The end of a producer epoch (KIP-98): after 32,766 claims, the coordinator gives the id another producer id."""

import socket
import struct
import time

import pytest

from spark_cas import append_once
from spark_cas.core.outcome import Appended
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import create_topic
from tests.support.writing import JobWriter, plan_of, table_of, values_in

pytestmark = [pytest.mark.kafka, pytest.mark.full, pytest.mark.timeout(600)]

INIT_PRODUCER_ID = 22
CONCURRENT_TRANSACTIONS = 51
LAST_EPOCH = 32_766
AT_ONCE = 100
CLAIMS = 10


class Coordinator:
    """Sends InitProducerId requests (version 1) for one transactional id over one connection."""

    def __init__(self, server, transactional_id):
        host, port = server.rsplit(":", 1)
        name = transactional_id.encode()
        header = struct.pack(">hhih", INIT_PRODUCER_ID, 1, 0, -1)
        body = struct.pack(f">h{len(name)}si", len(name), name, 60_000)
        self._request = struct.pack(">i", len(header + body)) + header + body
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._replies = self._socket.makefile("rb")

    def close(self):
        self._replies.close()
        self._socket.close()

    def epochs(self, count):
        """Claim the id this many times. Return producer id and epoch of each claim that the broker accepted.

        The broker rejects a claim while it still ends the transaction of an earlier one.
        """
        self._socket.sendall(self._request * count)
        accepted = []
        for _ in range(count):
            (size,) = struct.unpack(">i", self._replies.read(4))
            _, _, error, producer_id, epoch = struct.unpack(">iihqh", self._replies.read(size))
            assert error in (0, CONCURRENT_TRANSACTIONS), error
            if not error:
                accepted.append((producer_id, epoch))
        return accepted

    def claim(self):
        """Claim the id once. Return producer id and epoch."""
        while not (accepted := self.epochs(1)):
            time.sleep(0.05)
        return accepted[0]


def test_claims_pass_the_end_of_the_epoch(broker):
    topic = create_topic(broker.bootstrap)
    spec = KafkaSpec(broker.bootstrap, topic)
    with KafkaLog(spec) as zombie, KafkaLog(spec) as log:
        plan = plan_of(zombie, "zombie")
        writer = JobWriter(zombie, plan)
        end = writer.must_append("first").range.end_offset
        coordinator = Coordinator(broker.bootstrap, spec.id_of_partition(0, None))
        try:
            producer_id, epoch = coordinator.claim()
            while epoch < LAST_EPOCH - CLAIMS:
                count = min(AT_ONCE, LAST_EPOCH - CLAIMS - epoch)
                coordinator.epochs(count - 1)
                _, epoch = coordinator.claim()
        finally:
            coordinator.close()
        expected = ["first"]
        for number in range(3 * CLAIMS):
            with KafkaLog(spec) as claiming:
                outcome = append_once(claiming, 0, table_of([str(number)]), job=f"job-{number}", expected_offset=end)
            assert isinstance(outcome, Appended), outcome
            end = outcome.range.end_offset
            expected.append(str(number))
        assert not isinstance(writer.append(table_of(["zombie"])), Appended)
        assert values_in(log, 0) == expected
        coordinator = Coordinator(broker.bootstrap, spec.id_of_partition(0, None))
        try:
            later_id, later_epoch = coordinator.claim()
        finally:
            coordinator.close()
        assert later_id != producer_id
        assert later_epoch < 3 * CLAIMS
