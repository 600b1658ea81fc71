import subprocess
from itertools import chain

import pytest

from key_value_store.http import Access, Client
from tests.kv.http.servers import TOKEN, protections, serving

CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=127.0.0.1 "
    "-addext subjectAltName=IP:127.0.0.1"
)


@pytest.fixture(scope="session")
def nodes(tmp_path_factory):
    """Two shared nodes, which no test may harm."""
    with serving(tmp_path_factory.mktemp("kv")) as served:
        yield served


@pytest.fixture
def client(nodes):
    return Client([each.address for each in nodes])


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder with a token, a certificate and its key."""
    folder = tmp_path_factory.mktemp("files")
    subprocess.run(CERTIFICATE.split(), cwd=folder, check=True, capture_output=True)
    (folder / "token").write_text(f"{TOKEN}\n")
    return folder


@pytest.fixture(scope="session")
def secured(files, tmp_path_factory):
    """Two shared nodes with a token and TLS."""
    with serving(tmp_path_factory.mktemp("kv"), more=[*chain(*protections(files).values())]) as served:
        yield served


@pytest.fixture
def secured_client(secured, files):
    return Client([each.address for each in secured], Access.of_files(files / "token", files / "cert.pem"))
