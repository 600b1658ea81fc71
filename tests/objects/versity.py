"""The Versity S3 gateway, an S3 server that keeps objects in a folder. Go builds it once into a cache."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.objects.servers import S3_OPTIONS, Served, running
from tests.support.go_programs import built
from tools.ports import HOST, held_ports

VERSION = "v1.8.0"


@pytest.fixture(scope="session")
def versity() -> Iterator[Served]:
    """A bucket of a gateway."""
    with gateway() as served:
        yield served


def program() -> str:
    """Build the gateway unless the cache has it, and return its path."""
    return str(built("github.com/versity/versitygw", VERSION, "cmd/versitygw"))


@contextmanager
def gateway() -> Iterator[Served]:
    """Run a gateway with a bucket until the end of the block."""
    with tempfile.TemporaryDirectory() as folder, held_ports(1) as [port]:
        (Path(folder) / "logs").mkdir()
        options = S3_OPTIONS | {"aws_endpoint": f"http://{HOST}:{port}"}
        account = ("--access", options["aws_access_key_id"], "--secret", options["aws_secret_access_key"])
        command = [program(), *account, "--port", f"{HOST}:{port}", "posix", folder]
        with running(command) as endpoint:
            yield Served(endpoint, "s3://logs", options)


if __name__ == "__main__":
    program()
