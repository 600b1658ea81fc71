"""A store outage for half of the retry timeout, at each step: the load succeeds, with each row once.

The retry timeout, the request timeout and the outage have the ratios of production: 120 s, 30 s and 60 s.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import LogNotFoundError, StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Unknown
from spark_cas.log.deadline import within
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import complete_job, pin_plan
from spark_cas.log.objects import ObjectLog
from spark_cas.log.spec import LogSpec
from tests.long import full
from tests.objects.bad_day import BUSY, CUT_OFF, GIVES_UP, SILENT, BadDay, Proxy, proxy_to
from tests.objects.servers import Served
from tests.support.writing import JobWriter, append_foreign, plan_of, table_of, values_in

pytestmark = pytest.mark.s3

ROWS = ["a", "b", "c", "d", "e"]

STEPS = {
    "layout sought": ("GET", "prefix=", False),
    "layout put": ("PUT", "_log/layout", False),
    "layout put, reply lost": ("PUT", "_log/layout", True),
    "preflight": ("PUT", "_log/probe", False),
    "preflight, reply lost": ("PUT", "_log/probe", True),
    "plan sought": ("GET", "plan.json", False),
    "bounds": ("GET", "_log/start", False),
    "plan put": ("PUT", "plan.json", False),
    "plan put, reply lost": ("PUT", "plan.json", True),
    "claim": ("GET", "_log/ended", False),
    "first append": ("PUT", "/00000000000000000000.parquet", False),
    "first append, reply lost": ("PUT", "/00000000000000000000.parquet", True),
    "end sought": ("HEAD", "/00000000000000000002.parquet", False),
    "second append": ("PUT", "/00000000000000000002.parquet", False),
    "second append, reply lost": ("PUT", "/00000000000000000002.parquet", True),
    "hint": ("PUT", "_log/hints", False),
    "completion": ("PUT", "complete.json", False),
    "completion, reply lost": ("PUT", "complete.json", True),
    "read": ("GET", "/00000000000000000002.parquet", False),
}


@pytest.fixture
def proxy(s3: Served) -> Iterator[Proxy]:
    with proxy_to(s3.endpoint) as proxy:
        yield proxy


def spec_through(proxy: Proxy, s3: Served, seconds: float) -> LogSpec:
    """Return a new address that uses the proxy, with this retry timeout in seconds."""
    return s3.spec(aws_endpoint=proxy.endpoint, retry_timeout=f"{seconds * 1000:.0f}ms")


def load(log: ObjectLog) -> list[str]:
    """Run all steps of a load into a new log, and read it."""
    with pytest.raises(LogNotFoundError):
        log.layout()
    log.create(1)
    log.preflight()
    plan = pin_plan(log, "job", ExpectedOffsets.parse("end"))
    rows = [(0, batch) for batch in table_of(ROWS).to_batches()]
    results = append_rows(log, plan, rows, task="run/0", limits=ChunkLimits(max_records=2))
    assert complete_job(log, plan, results).rows == len(ROWS)
    return values_in(log, 0)


@contextmanager
def bad_day(s3: Served, day: BadDay) -> Iterator[LogSpec]:
    """Yield a new address with this outage, and with a retry timeout of twice its duration."""
    with proxy_to(s3.endpoint) as proxy:
        proxy.day = day
        yield spec_through(proxy, s3, 2 * day.seconds)


@pytest.mark.parametrize("kind", [SILENT, BUSY, *full(GIVES_UP, CUT_OFF)])
def test_a_load_rides_out_a_bad_time_at_each_step(s3, kind):
    def ride_out(step: str) -> tuple[list[str], list[str], bool]:
        method, path, after = STEPS[step]
        day = BadDay(kind, 4, method, path, after)
        with bad_day(s3, day) as spec:
            return load(ObjectLog(spec)), values_in(ObjectLog(spec), 0), day.began.is_set()

    with ThreadPoolExecutor(len(STEPS)) as threads:
        found = dict(zip(STEPS, threads.map(ride_out, STEPS), strict=True))
    assert found == dict.fromkeys(STEPS, (ROWS, ROWS, True))


REQUESTS: dict[str, Callable[[JobWriter], object]] = {
    "listing .*/_log/layout": lambda writer: writer._log.layout(),
    "reading .*/plan.json": lambda writer: writer._log.plan("job"),
    "(writing|reading) .*/job/plan.json": lambda writer: writer._log.record_plan(writer.claim.plan),
    "(listing|reading) .*": lambda writer: writer._log.claim(0, writer.claim.plan),
    "reading .*/partition=00000/.*": lambda writer: writer._log.bounds(0),
    "reading .*/00000000000000000001.parquet": lambda writer: writer.append(table_of("b")),
    "listing .*/_log/jobs": lambda writer: writer._log.jobs(),
}
"""Requests to a store, by the beginning of their errors."""


@pytest.mark.parametrize("kind", [SILENT, *full(BUSY, GIVES_UP)])
def test_store_that_stays_down_fails_with_its_path(s3, kind):
    def fail(at: str) -> None:
        with proxy_to(s3.endpoint) as proxy:
            spec = spec_through(proxy, s3, 2)
            log = ObjectLog(spec)
            log.create(1)
            writer = JobWriter(log, plan_of(log, "job"))
            writer.must_append("a")
            proxy.day = BadDay(kind, 1e9)
            start = time.monotonic()
            with pytest.raises(StorageError, match=rf"^\[STORAGE\] {at}: the store ") as refused:
                REQUESTS[at](writer)
            assert 1 < time.monotonic() - start < 20
            assert spec.url in str(refused.value)
            assert "canary" not in str(refused.value)
            assert "127.0.0.1" not in str(refused.value)
            assert proxy.day.asked > 1

    with ThreadPoolExecutor(len(REQUESTS)) as threads:
        list(threads.map(fail, REQUESTS))


@pytest.mark.parametrize("after", [False, True], ids=["not stored", "stored"])
def test_only_a_put_whose_fate_cannot_be_read_is_unknown(s3, proxy, after):
    spec = spec_through(proxy, s3, 2)
    log = ObjectLog(spec)
    log.create(1)
    plan = plan_of(log, "job")
    writer = JobWriter(log, plan)
    proxy.day = BadDay(BUSY, 1e9, "PUT", "/partition=00000/", after)
    outcome = writer.append(table_of("a"))
    assert isinstance(outcome, Unknown)
    assert f"{spec.url}/partition=00000/00000000000000000000.parquet" in outcome.cause
    proxy.day = None
    again = JobWriter(ObjectLog(spec), plan)
    assert (again.claim.progress.rows if again.claim.progress else 0) == after


def test_nearer_deadline_ends_the_wait(s3, proxy):
    log = ObjectLog(spec_through(proxy, s3, 60))
    log.create(1)
    proxy.day = BadDay(BUSY, 1e9)
    start = time.monotonic()
    with within(1), pytest.raises(StorageError):
        log.bounds(0)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("met_by", ["this log", "the driver"])
def test_closed_port_is_retried_if_the_store_was_reached_before(s3, met_by):
    with proxy_to(s3.endpoint) as proxy:
        port, spec = proxy.server_port, spec_through(proxy, s3, 30)
        log = ObjectLog(spec)
        log.create(1)
        append_foreign(log, 0, "a")
    with pytest.raises(StorageError, match="did not answer") as caught:
        ObjectLog(spec).bounds(0)
    # If the store has never answered, the client assumes that the address is wrong.
    assert "retried" not in caught.value.message
    if met_by == "the driver":
        log = ObjectLog(replace(spec, reached=True))
    opened = threading.Event()

    def open_again() -> None:
        time.sleep(2)
        with proxy_to(s3.endpoint, port):
            opened.wait(30)

    server = threading.Thread(target=open_again)
    server.start()
    try:
        assert log.bounds(0).end_offset == 1
    finally:
        opened.set()
        server.join()


def test_long_wait_is_logged_with_its_reason(s3, proxy, caplog, set_timing):
    set_timing(unlogged_wait=1.0)
    spec = spec_through(proxy, s3, 30)
    log = ObjectLog(spec)
    log.create(1)
    proxy.day = BadDay(BUSY, 2)
    log.bounds(0)
    told = [record.getMessage() for record in caplog.records if record.name == "spark_cas"]
    assert len(told) == 1
    assert spec.url in told[0]
    assert "the store failed (HTTP 503). Waiting since" in told[0]
