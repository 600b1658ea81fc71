"""Servers with the S3 and Azure APIs, each a process on a free port of this machine, for tests that need one."""

import base64
import hashlib
import hmac
import os
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spark_cas.log.objects import ObjectLog
from spark_cas.log.spec import LogSpec
from tests.executables import executable

START_SECONDS = 60
STOP_SECONDS = 10

AZURITE = Path(__file__).parents[1] / "azurite/node_modules/azurite/dist/src/blob/main.js"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every Azurite server. Its manual publishes both values."""

S3_OPTIONS = {
    "aws_access_key_id": "writer",
    "aws_secret_access_key": "canary-of-a-secret",
    "aws_region": "us-east-1",
    "aws_virtual_hosted_style_request": "false",
    "allow_http": "true",
}
"""The options of each server with the S3 API, except its endpoint."""


@dataclass(frozen=True)
class Served:
    """A bucket or container of a running server."""

    endpoint: str
    url: str
    options: dict[str, str]

    def spec(self, **changed: str) -> LogSpec:
        """Return the spec of a new address."""
        return LogSpec.parse(f"{self.url}/{uuid.uuid4().hex}/flights", self.options | changed)

    def new_log(self) -> ObjectLog:
        """Open a log at a new address."""
        return ObjectLog(self.spec())


@pytest.fixture(scope="session")
def s3() -> Iterator[Served]:
    """A bucket of a moto server."""
    with moto() as served:
        yield served


@pytest.fixture(scope="session")
def azure() -> Iterator[Served]:
    """A container of an Azurite server."""
    if not AZURITE.exists():
        pytest.fail("the Azure test server is missing: run `make env`, which installs it")
    arguments = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--disableTelemetry", "--skipApiVersionCheck"]
    arguments += ["--loose", "--inMemoryPersistence", "--silent"]
    with running([executable("node"), str(AZURITE), *arguments]) as endpoint:
        account = f"{endpoint}/{AZURE_ACCOUNT}"
        _create_container(account, "logs")
        yield Served(
            endpoint,
            "az://logs",
            {
                "azure_storage_account_name": AZURE_ACCOUNT,
                "azure_storage_account_key": AZURE_KEY,
                "azure_storage_endpoint": account,
                "allow_http": "true",
            },
        )


@contextmanager
def moto(**environment: str) -> Iterator[Served]:
    """Run a moto server with a bucket and these additional environment variables."""
    with running([sys.executable, "-m", "tests.objects.s3_server"], environment) as endpoint:
        # moto accepts requests without credentials.
        _request("PUT", f"{endpoint}/logs", {})
        yield Served(
            endpoint,
            "s3://logs",
            S3_OPTIONS | {"aws_endpoint": endpoint},
        )


@contextmanager
def running(command: list[str], environment: dict[str, str] | None = None) -> Iterator[str]:
    """Run a server until the end of the block. Its output must contain its address, ``127.0.0.1:port``."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | (environment or {})
    )
    try:
        yield _address(process)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


def _address(process: subprocess.Popen[bytes]) -> str:
    lines: queue.Queue[bytes] = queue.Queue()
    output = process.stdout
    assert output is not None

    def drain() -> None:
        # Read the output to its end, because a server blocks if its output pipe is full.
        with output:
            for line in output:
                lines.put(line)
        lines.put(b"")

    threading.Thread(target=drain, daemon=True).start()
    said = b""
    deadline = time.monotonic() + START_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=left)
        except queue.Empty:
            break
        if line == b"":
            break
        said += line
        found = re.search(rb"127\.0\.0\.1:[1-9][0-9]*", line)
        if found:
            return f"http://{found[0].decode()}"
    pytest.fail(f"the server {process.args!r} did not start. It said: {said.decode(errors='replace')}")


def _create_container(account: str, name: str) -> None:
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
    resource = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{name}\nrestype:container"
    text = "PUT" + "\n" * 12 + f"{headers}\n{resource}"
    mac = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
    _request(
        "PUT",
        f"{account}/{name}?restype=container",
        {
            "x-ms-date": date,
            "x-ms-version": "2021-08-06",
            "Authorization": f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(mac).decode()}",
            # The signature does not include the length of an empty body.
            "Content-Length": "0",
        },
    )


def _request(method: str, url: str, headers: dict[str, str]) -> None:
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 -- our own server
    with urllib.request.urlopen(request, timeout=START_SECONDS) as reply:  # noqa: S310
        reply.read()
