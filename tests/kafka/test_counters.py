"""Shared counters that several processes increment on one topic: no increment is lost, and no writer is fenced."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.counting import count_up, require_all_counted

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

WRITERS = 4
EACH = 10


def write(spec, writer):
    with KafkaLog(spec) as log:
        count_up(log, writer, EACH)


def test_no_increment_is_lost(broker, topic):
    spec = KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=20_000, transaction_timeout_ms=20_000)
    with ProcessPoolExecutor(WRITERS, get_context("spawn")) as processes:
        for done in [processes.submit(write, spec, writer) for writer in range(WRITERS)]:
            done.result()
    with KafkaLog(spec) as log:
        require_all_counted(log, WRITERS * EACH)
