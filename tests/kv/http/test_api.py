"""The HTTP API of a node, over real connections, as any HTTP client uses it."""

import base64
import json
import socket

import pytest

from key_value_store.http.wire import MOST_BODY_BYTES, path_of_key
from tests.kv.http.servers import SECONDS, ask, leader_of, parts_of
from tests.kv.nodes import keys_of

ODD = bytes(range(256))


@pytest.fixture
def there(nodes, request):
    """The node that leads a shard, and a path in this shard that belongs to this test alone."""
    path = path_of_key(request.node.name.encode())
    return leader_of(nodes, path), path


def test_value_is_returned_with_its_version_as_etag(there):
    node, path = there
    status, headers, body = ask(node, "PUT", path, ODD)
    assert (status, headers["ETag"]) == (200, '"{}"'.format(json.loads(body)["version"]))
    status, read, body = ask(node, "GET", path)
    assert (status, body, read["ETag"]) == (200, ODD, headers["ETag"])
    assert (read["Kv-Read"], read["Content-Type"]) == ("linearizable", "application/octet-stream")
    assert read["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("key", [ODD, b"", b"..", b"a/b?c#d%2F", "schlüssel".encode()])
def test_keys_are_any_bytes(nodes, key):
    path = path_of_key(key)
    node = leader_of(nodes, path)
    assert ask(node, "PUT", path, b"of " + key)[0] == 200
    assert ask(node, "GET", path)[2] == b"of " + key


def test_an_absent_key_is_404(there):
    status, headers, body = ask(*_get(there))
    assert (status, headers["ETag"], json.loads(body)["version"]) == (404, None, None)
    assert json.loads(body)["token"] == "ABSENT"


def test_a_deleted_key_is_absent(there):
    node, path = there
    ask(node, "PUT", path, b"1")
    status, _, body = ask(node, "DELETE", path)
    assert (status, list(json.loads(body))) == (200, ["offset"])
    assert ask(node, "GET", path)[0] == 404


def test_if_match_writes_over_its_version_alone(there):
    node, path = there
    first = ask(node, "PUT", path, b"1")[1]["ETag"]
    second = ask(node, "PUT", path, b"2", {"If-Match": first})
    assert second[0] == 200
    for method in ("PUT", "DELETE"):
        status, headers, body = ask(node, method, path, b"3", {"If-Match": first})
        assert (status, headers["ETag"]) == (412, second[1]["ETag"])
        assert json.loads(body)["token"] == "VERSION_MISMATCH"
    assert ask(node, "GET", path)[2] == b"2"


def test_if_none_match_writes_an_absent_key_alone(there):
    node, path = there
    made = ask(node, "PUT", path, b"1", {"If-None-Match": "*"})
    assert made[0] == 201
    status, headers, _ = ask(node, "PUT", path, b"2", {"If-None-Match": "*"})
    assert (status, headers["ETag"]) == (412, made[1]["ETag"])
    assert ask(node, "GET", path)[2] == b"1"


def test_a_mismatch_with_an_absent_key_names_no_version(there):
    node, path = there
    status, headers, body = ask(node, "PUT", path, b"1", {"If-Match": '"0"'})
    assert (status, headers["ETag"], json.loads(body)["version"]) == (412, None, None)


def test_read_of_an_unchanged_value_is_304(there):
    node, path = there
    tag = ask(node, "PUT", path, b"1")[1]["ETag"]
    assert ask(node, "GET", path, headers={"If-None-Match": tag})[::2] == (304, b"")
    ask(node, "PUT", path, b"2")
    assert ask(node, "GET", path, headers={"If-None-Match": tag})[2] == b"2"


def test_another_node_sends_to_the_one_that_leads(nodes, there):
    leader, path = there
    (other,) = (each.address for each in nodes if each.address != leader)
    ask(leader, "PUT", path, b"1")
    for method in ("GET", "PUT", "DELETE"):
        status, headers, _ = ask(other, method, f"{path}?timeout=5", b"2" if method == "PUT" else None)
        assert (status, headers["Location"]) == (307, f"http://{leader}{path}?timeout=5")
    assert ask(leader, "GET", path)[2] == b"1"


def test_nodes_that_live_do_not_depose_each_other(nodes, there):
    leader, path = there
    (other,) = (each.address for each in nodes if each.address != leader)
    for _ in range(20):
        assert ask(other, "GET", path)[0] == 307
    assert ask(leader, "GET", path)[0] == 404


def test_any_node_serves_stale_reads_and_marks_them(nodes, there):
    _, path = there
    for node in nodes:
        status, headers, _ = ask(node.address, "GET", f"{path}?stale=true")
        assert (status, headers["Kv-Read"]) == (404, "stale")


def test_a_transaction_writes_keys_of_all_shards_or_none(nodes, client):
    keys = [keys_of(shard, 40)[-1] for shard in range(2)]
    status, _, body = _transact(nodes[0].address, [(key, b"1") for key in keys])
    assert status == 200, body
    versions = {base64.b64decode(each["key"]): each["version"] for each in json.loads(body)["versions"]}
    assert [client.get(key).version for key in keys] == [versions[key] for key in keys]
    wrong = [{"key": _text(keys[1]), "version": None}]
    status, headers, body = _transact(nodes[0].address, [(key, b"2") for key in keys], wrong)
    assert (status, json.loads(body)["version"], headers["ETag"]) == (
        412,
        versions[keys[1]],
        f'"{versions[keys[1]]}"',
    )
    assert [client.get(key).value for key in keys] == [b"1", b"1"]


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        (("PUT", "/keys/bad", b"1", {"If-Match": "7"}), 400),
        (("PUT", "/keys/bad", b"1", {"If-Match": '"7", "8"'}), 400),
        (("PUT", "/keys/bad", b"1", {"If-Match": 'W/"7"'}), 400),
        (("PUT", "/keys/bad", b"1", {"If-Match": "*"}), 400),
        (("PUT", "/keys/bad", b"1", {"If-Match": '"7"', "If-None-Match": "*"}), 400),
        (("DELETE", "/keys/bad", None, {"If-None-Match": '"7"'}), 400),
        (("PUT", "/keys/bad?timeout=0", b"1", {}), 400),
        (("PUT", "/keys/bad?timeout=nan", b"1", {}), 400),
        (("PUT", "/keys/bad?timeout=3600", b"1", {}), 400),
        (("GET", "/keys/bad?stale=maybe", None, {}), 400),
        (("PUT", "/keys/spark_cas.kv%2Fleader", b"1", {}), 400),
        (("PUT", "/%6Beys/bad", b"1", {}), 400),
        (("PUT", "/keys/bad", b"x" * (MOST_BODY_BYTES + 1), {}), 413),
        (("POST", "/keys/bad", b"1", {}), 405),
        (("GET", "/nowhere", None, {}), 404),
        (("POST", "/transactions", b"{}", {}), 415),
        (("POST", "/transactions", b"{}", {"Content-Type": "application/json"}), 400),
        (("POST", "/transactions", b'{"writes": []}', {"Content-Type": "application/json"}), 400),
        (("POST", "/transactions", b"[" * 100_000, {"Content-Type": "application/json"}), 400),
        (
            (
                "POST",
                "/transactions",
                b'{"writes": [{"key": "hunter2!", "value": null}]}',
                {"Content-Type": "application/json"},
            ),
            400,
        ),
        (("GET", "/status", None, {"Host": "evil.example"}), 421),
        (("GET", "/status", None, {"Host": "evil_.example"}), 421),
        (("GET", "/status", None, {"Host": "[::1"}), 421),
    ],
)
def test_invalid_request_is_rejected_as_json_without_effect(nodes, client, request_of, status):
    found, sent, said = ask(nodes[0].address, *request_of)
    assert found == status
    assert sent["Content-Type"] == "application/json"
    document = json.loads(said)
    assert set(document) == {"token", "message"}
    assert "hunter2" not in document["message"]
    assert client.get(b"bad").value is None


def test_missing_body_is_not_waited_for(nodes):
    with socket.create_connection(parts_of(nodes[0].address), SECONDS) as slow:
        slow.sendall(b"PUT /keys/bad?timeout=0.2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345")
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_broken_body_is_not_written(nodes, client):
    with socket.create_connection(parts_of(nodes[0].address), SECONDS) as broken:
        broken.sendall(b"PUT /keys/bad HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345")
        broken.shutdown(socket.SHUT_WR)
        broken.recv(100)
    assert client.get(b"bad").value is None


def test_status_reports_each_shard(nodes, there):
    node, path = there
    ask(node, "PUT", path, b"1")
    ask(node, "PUT", path, b"2", {"If-None-Match": "*"})
    status = json.loads(ask(node, "GET", "/status")[2])
    assert (status["node"], status["log"], len(status["shards"])) == (node, "log", 2)
    assert any(each["leads"] and each["writes"] and each["refused"] for each in status["shards"])
    assert json.loads(ask(node, "GET", "/health")[2]) == {"node": node, "failing": []}


def _get(there):
    node, path = there
    return node, "GET", path


def _text(data):
    return base64.b64encode(data).decode()


def _transact(node, writes, expected=()):
    writes = [{"key": _text(key), "value": _text(value)} for key, value in writes]
    body = json.dumps({"writes": writes, "expected": list(expected)})
    return ask(node, "POST", "/transactions", body, {"Content-Type": "application/json"})
