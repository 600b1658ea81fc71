"""The log line of an accelerator that is not used."""

import logging

import pytest

from spark_cas.log.log_lines import log_unused
from spark_cas.spark.accelerators.quick_ack import acknowledge


@pytest.fixture
def log(caplog):
    """The log of the test. Lines of earlier tests do not count as logged."""
    log_unused.cache_clear()
    caplog.set_level(logging.INFO, logger="spark_cas")
    yield caplog
    log_unused.cache_clear()


def test_unused_accelerator_is_logged_once_for_each_reason(log):
    for reason in ("one", "another", "one"):
        log_unused("accelerator", reason)
    assert [line.partition(".")[0] for line in log.messages] == ["accelerator: one", "accelerator: another"]


def test_task_without_visible_socket_logs_that_spark_waits_for_acknowledgements(log):
    for _ in range(2):
        acknowledge(None)
    assert [line.partition(":")[0] for line in log.messages] == ["quick_ack"]
