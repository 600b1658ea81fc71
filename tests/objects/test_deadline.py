"""The deadline of an operation, the timeout of a request, and errors that a retry cannot fix."""

import pickle
import time
from datetime import timedelta
from functools import partial

import pytest

from spark_cas.core.errors import OptionError, StorageError
from spark_cas.log.objects.store import _request_timeout, open_store
from spark_cas.log.objects.store_replies import NoServerError, NotNowError
from spark_cas.log.spec import LogSpec
from tests.objects.places import flaky_log
from tests.support.writing import JobWriter, append_foreign, plan_of, table_of

OPERATIONS = {
    "claim": lambda log, plan, _: log.claim(0, plan),
    "append": lambda log, _, writer: writer.append(table_of("b")),
    "bounds_of": lambda log, *_: log.bounds_of([0, 1], waiting=True),
    "progress_of": lambda log, plan, _: log.progress_of([0, 1], plan.job),
    "trim": lambda log, *_: log.trim(0, 1),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_waits_of_one_operation_share_a_deadline(operation):
    """The store answers each request in time, but all of them together take too long."""
    log, store = flaky_log(2, patience="600ms")
    plan = plan_of(log, "job")
    writer = JobWriter(log, plan)
    writer.must_append("a")
    append_foreign(log, 0, "x", "y")
    asked_first: dict[tuple[str, str], float] = {}

    def slow(operation, path):
        began = asked_first.setdefault((operation, path), time.monotonic())
        if time.monotonic() - began < 0.4:
            raise NotNowError("no reply")

    for each in ("get", "get_end", "below", "below after", "folders"):
        store.before[each] = partial(slow, each)
    with pytest.raises(StorageError, match="no reply"):
        OPERATIONS[operation](log, plan, writer)


@pytest.mark.parametrize(
    ("patience", "request_seconds"), [(400, 100), (120, 30), (60, 30), (30, 30), (20, 5), (5, 1.25), (1, 1)]
)
def test_a_request_has_time_for_a_large_put_where_patience_has(patience, request_seconds):
    assert _request_timeout(timedelta(seconds=patience)) == timedelta(seconds=request_seconds)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("az://logs/flights", {"azure_storage_account_key": "Y2FuYXJ5"}),
        ("az://logs/flights", {"azure_storage_account_name": "a", "azure_storage_account_key": "canary!"}),
        ("s3://logs/flights", {"aws_skip_signature": "canary"}),
    ],
)
def test_inconsistent_options_are_reported(url, options, monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(OptionError, match=rf"opening {url}: the store\.\* options.*incomplete") as refused:
        open_store(LogSpec.parse(url, options))
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("kind", [NotNowError, NoServerError])
def test_transient_error_survives_a_pickle(kind):
    error = pickle.loads(pickle.dumps(kind("reading: silent. Wait.", "silent")))  # noqa: S301 - our own
    assert (type(error), error.message, error.why) == (kind, "reading: silent. Wait.", "silent")
    assert type(error)(f"{error.message} More.").message == "reading: silent. Wait. More."
