import pytest

from spark_cas.log.memory import MemoryLog
from spark_cas.log.open import open_log
from tests.kv.nodes import SHARDS


@pytest.fixture(params=["memory", "directory"])
def log(request, tmp_path):
    """What opens a log of the store's shards, each time the same one."""
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
    """Nodes look at the log only when they are asked: whatever they know then, they know from before."""
    monkeypatch.setattr("spark_cas.kv.shard._POLL_SECONDS", 3600)


@pytest.fixture
def impatient(monkeypatch):
    """Terms need no time to settle."""
    monkeypatch.setattr("spark_cas.kv.leading.SETTLE_SECONDS", 0)
