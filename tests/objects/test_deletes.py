"""Deletes that fail: lost responses while another writer reuses the name, and missing permissions."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

import pytest

from spark_cas.core.errors import StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.locking import Applicant, acquire_lock, release_lock
from spark_cas.log.objects import paths
from spark_cas.log.objects.store import RetryingStore, open_store
from spark_cas.log.spec import LogSpec
from tests.objects.places import flaky_log
from tests.objects.served import served

OLD, NEW = b"old", b"new"


class PutAgainAtOnce(BaseHTTPRequestHandler):
    """A store with one object: after the first delete, another writer puts it, and the client gets a 502."""

    holds = OLD

    def do_GET(self) -> None:
        self._reply(200, type(self).holds)

    def do_DELETE(self) -> None:
        self._deleted()

    def do_POST(self) -> None:
        """Handle S3's delete of several objects."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._deleted()

    def log_message(self, *_: object) -> None:
        pass

    def _deleted(self) -> None:
        first, type(self).holds = type(self).holds == OLD, NEW if type(self).holds == OLD else b""
        self._reply(502 if first else 204, b"")

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(PutAgainAtOnce, "holds", OLD)
    with served(PutAgainAtOnce) as address:
        yield address


@pytest.mark.parametrize("url", ["s3://bucket/log", "az://container/log"])
def test_object_put_after_the_first_try_stays(endpoint: str, url: str) -> None:
    options = {
        "aws_endpoint": endpoint,
        "aws_access_key_id": "id",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
        "allow_http": "true",
    }
    if url.startswith("az"):
        options = {
            "azure_storage_endpoint": endpoint,
            "azure_storage_account_name": "account",
            "azure_storage_account_key": "a2V5",
            "allow_http": "true",
        }
    spec = LogSpec.parse(url, options)
    with suppress(StorageError):  # the store does not send a valid response to the second delete either
        RetryingStore(open_store(spec), spec).delete_if("_log/jobs/job/plan.json", lambda found: bytes(found) == OLD)
    assert PutAgainAtOnce.holds == NEW


def test_loads_go_on_where_nothing_may_be_deleted(caplog: pytest.LogCaptureFixture) -> None:
    log, store = flaky_log()

    def refused(path: str) -> None:
        raise StorageError(f"deleting {path}: the store refused the credentials or their rights.")

    store.before["delete"] = refused
    with caplog.at_level(logging.WARNING, "spark_cas"):
        for number in range(12):
            lock = acquire_lock(log, Applicant(f"load-{number}", "run"), ExpectedOffsets("end"))
            assert lock is not None
            release_lock(log, lock)
            assert not log.load_locks().held, "the next load need not wait"
    assert len(store.inner.below(paths.LOAD_LOCKS)) == 24, "the chunks stay"
    [told] = caplog.messages
    assert "old locks stay" in told
    assert paths.load_locks(1) in told
