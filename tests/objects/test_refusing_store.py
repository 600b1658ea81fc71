"""A store without conditional puts, as some stores with the S3 API are, and one that refuses deletes."""

import re
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

import pytest

from spark_cas import open_log
from spark_cas.core.errors import AccessDeniedError, StorageError
from tests.objects.served import served

EMPTY = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult><Name>bucket</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"""


EXPIRED = b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>canary</Message></Error>"


class RefusesPuts(BaseHTTPRequestHandler):
    status = 501
    body = b""
    refusals: ClassVar[list[str]] = []
    """The error codes of the next deletes."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(EMPTY)))
        self.end_headers()
        self.wfile.write(EMPTY)

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        [key] = re.findall("<Key>.+</Key>", body)
        result = f"<Deleted>{key}</Deleted>"
        if self.refusals:
            result = f"<Error>{key}<Code>{self.refusals.pop(0)}</Code><Message>no</Message></Error>"
        reply = f"<DeleteResult>{result}</DeleteResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


@pytest.fixture
def endpoint():
    with served(RefusesPuts) as address:
        yield address


def opened(endpoint):
    options = {
        "aws_endpoint": endpoint,
        "aws_access_key_id": "id",
        "aws_secret_access_key": "canary",
        "aws_region": "us-east-1",
        "allow_http": "true",
    }
    return open_log("s3://bucket/flights", options)


def test_expired_credentials_are_reported_immediately(endpoint, monkeypatch):
    """S3 answers with status 400, as a store without conditional puts does."""
    monkeypatch.setattr(RefusesPuts, "status", 400)
    monkeypatch.setattr(RefusesPuts, "body", EXPIRED)
    with opened(endpoint) as log, pytest.raises(AccessDeniedError) as refused:
        log.create(1)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (400, "HTTP 400.*conditional puts"),
        (417, "HTTP 417.*conditional puts"),
        (501, "HTTP 501.*conditional puts"),
        (301, "no such store.*region"),
    ],
)
def test_store_without_conditional_puts_is_reported_immediately(endpoint, monkeypatch, status, told):
    monkeypatch.setattr(RefusesPuts, "status", status)
    with (
        opened(endpoint) as log,
        pytest.raises(
            StorageError, match=rf"^\[STORAGE\] writing s3://bucket/flights/_log/probe: .*{told}"
        ) as refused,
    ):
        log.create(1)
    assert "canary" not in str(refused.value)


def test_delete_is_retried_unless_the_right_is_missing(endpoint, monkeypatch):
    refusals = ["SlowDown", "InternalError", "ServiceUnavailable"]
    monkeypatch.setattr(RefusesPuts, "refusals", refusals)
    with opened(endpoint) as log:
        log.remove_cancelled("run")
        assert refusals == []
        refusals += ["AccessDenied"]
        with pytest.raises(AccessDeniedError, match="deleting s3://bucket/flights/_log/cancelled/run"):
            log.remove_cancelled("run")
