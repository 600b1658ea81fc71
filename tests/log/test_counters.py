"""Eight writers increment shared counters concurrently: no increment is lost, and all writers end."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from spark_cas import open_log
from tests.counting import count_up, require_all_counted
from tests.support.memory_log import MemoryLog

WRITERS = 8
EACH = 15


@pytest.fixture(params=["memory", "objects"])
def opened(request):
    """Return a function that opens the log, again for each writer if the backend is not shared between threads."""
    if request.param == "memory":
        log = MemoryLog()
        log.create(1)
        return lambda: log
    address = f"memory:///{uuid4().hex}"
    with open_log(address) as backend:
        backend.create(1)
    return lambda: open_log(address)


@pytest.mark.timeout(300)
def test_no_increment_is_lost(opened):
    def write(writer):
        with opened() as log:
            count_up(log, writer, EACH)

    with ThreadPoolExecutor(WRITERS) as threads:
        for done in [threads.submit(write, writer) for writer in range(WRITERS)]:
            done.result()
    with opened() as log:
        require_all_counted(log, WRITERS * EACH)
