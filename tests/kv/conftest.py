import pytest

from spark_cas.log.open import open_log
from tests.kv.nodes import SHARDS
from tests.support.memory_log import MemoryLog


@pytest.fixture(params=["memory", "directory"])
def log(request, tmp_path):
    """Return a function that opens a log with the store's shards, the same log each time."""
    if request.param == "memory":
        memory = MemoryLog()
        memory.create(SHARDS)
        return lambda: memory
    address = str(tmp_path / "log")
    with open_log(address) as made:
        made.create(SHARDS)
    return lambda: open_log(address)


@pytest.fixture
def still(monkeypatch):
    """Nodes read the log only to serve a request: otherwise they keep their old state."""
    monkeypatch.setattr("key_value_store.shard._POLL_SECONDS", 3600)


@pytest.fixture
def impatient(monkeypatch):
    """A new leader's term needs no time to settle."""
    monkeypatch.setattr("key_value_store.leading.SETTLE_SECONDS", 0)
