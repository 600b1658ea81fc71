"""The Versity S3 gateway, an S3 server that keeps objects in a folder. Go builds it once into a cache."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.executables import executable
from tests.objects.servers import S3_OPTIONS, Served, running
from tools.kafka_broker.jars import cache_folder
from tools.ports import HOST, held_ports

VERSION = "v1.8.0"
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
_BUILD_SECONDS = 900
"""The time limit includes the download of the modules."""


@pytest.fixture(scope="session")
def versity() -> Iterator[Served]:
    """A bucket of a gateway."""
    with gateway() as served:
        yield served


@contextmanager
def gateway() -> Iterator[Served]:
    """Run a gateway with a bucket until the end of the block."""
    program = str(_built())
    with tempfile.TemporaryDirectory() as folder, held_ports(1) as [port]:
        (Path(folder) / "logs").mkdir()
        options = S3_OPTIONS | {"aws_endpoint": f"http://{HOST}:{port}"}
        account = ("--access", options["aws_access_key_id"], "--secret", options["aws_secret_access_key"])
        command = [program, *account, "--port", f"{HOST}:{port}", "posix", folder]
        with running(command) as endpoint:
            yield Served(endpoint, "s3://logs", options)


def _built() -> Path:
    """Build the gateway unless the cache has it, and return its path."""
    program = cache_folder() / "versitygw" / VERSION / "versitygw"
    if not program.exists():
        with tempfile.TemporaryDirectory(dir=_made(program.parent)) as folder:
            environment = os.environ | {"GOBIN": folder, "GOFLAGS": "-mod=mod"}
            subprocess.run(
                [executable("go"), "install", _MODULE], env=environment, check=True, timeout=_BUILD_SECONDS
            )
            # Several processes may build at the same time: each moves a complete program to the path.
            (Path(folder) / program.name).replace(program)
    return program


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
