"""State that a Spark worker keeps between its tasks."""

import gc
import sys
import time
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa
import pytest

from spark_cas.core.errors import LogNotFoundError, LogNotSharedError
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client import kept_clients
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.spark.accelerators import freezing
from spark_cas.spark.worker import open_here, planned_log
from tests.kafka.clients import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


@pytest.fixture
def spec(broker):
    return KafkaSpec(broker.bootstrap, create_topic(broker.bootstrap))


@pytest.fixture
def in_worker(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    freezing._freeze_once.cache_clear()
    yield
    freezing._freeze_once.cache_clear()
    gc.unfreeze()
    while kept_clients._idle:
        kept_clients._idle.popitem()[1][1].close()


@pytest.mark.spark
def test_workers_are_started_as_modules_of_spark(spark):
    def look(batches):
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [getattr(sys.modules["__main__"].__spec__, "name", None)]})

    [[name]] = spark.range(1).mapInArrow(look, "name string").collect()
    assert name.startswith("pyspark.")


@pytest.mark.usefixtures("in_worker")
def test_a_worker_stays_connected(spec):
    with open_here(spec) as log:
        log.layout()
    assert len(kept_clients._idle) == 1


@pytest.mark.usefixtures("in_worker")
def test_imported_modules_are_frozen(spec):
    with open_here(spec):
        assert not gc.get_freeze_count()  # not before all modules that a task needs are imported
    spared = gc.get_freeze_count()
    assert spared > 10_000
    ring: list[object] = []
    ring.append(ring)
    with open_here(spec):
        pass
    assert gc.get_freeze_count() <= spared  # objects of later tasks are not frozen: they may become garbage


@pytest.mark.usefixtures("in_worker")
def test_later_imports_are_frozen(spec, monkeypatch):
    with open_here(spec):
        pass
    spared = gc.get_freeze_count()
    things = [[number] for number in range(20_000)]
    for number in range(200):
        monkeypatch.setitem(sys.modules, f"later{number}", ModuleType("later"))
    with open_here(spec):
        pass
    assert gc.get_freeze_count() > spared + len(things) // 2


def test_no_other_program_does_so(spec):
    with open_here(spec) as log:
        log.layout()
    assert kept_clients._idle == {}
    assert not gc.get_freeze_count()


def test_unknown_log_is_requested_again_even_if_slow(spec, monkeypatch, set_timing):
    with KafkaLog(spec) as log:
        log_id = log.layout().log_id
    layout, asked = KafkaLog.layout_now, []

    def slow(log):
        asked.append(log)
        if len(asked) == 1:
            time.sleep(0.2)
            raise LogNotFoundError("not yet")
        return layout(log)

    monkeypatch.setattr(KafkaLog, "layout_now", slow)
    set_timing(planned_log=0.1)
    with planned_log(spec, log_id):
        assert len(asked) == 2


@pytest.mark.usefixtures("in_worker")
def test_appends_reuse_topic_metadata_and_reads_do_not(spec, monkeypatch, set_timing):
    with open_here(spec) as log:
        log_id = log.layout().log_id
    asked, layout = [], KafkaLog.layout_now

    def counted(log):
        asked.append(log)
        return layout(log)

    monkeypatch.setattr(KafkaLog, "layout_now", counted)
    set_timing(fresh_age=60.0)
    with planned_log(spec, log_id, appending=True):
        assert not asked
    with planned_log(spec, log_id):
        assert len(asked) == 1
    set_timing(planned_log=0.1)
    with pytest.raises(LogNotSharedError), planned_log(spec, "another", appending=True):
        pass
    assert len(asked) > 2
