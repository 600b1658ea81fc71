import pytest

from key_value_store.http import Client
from tests.kv.http.servers import serving


@pytest.fixture(scope="session")
def nodes(tmp_path_factory):
    """Two shared nodes, which no test may harm."""
    with serving(tmp_path_factory.mktemp("kv")) as served:
        yield served


@pytest.fixture
def client(nodes):
    return Client([each.address for each in nodes])
