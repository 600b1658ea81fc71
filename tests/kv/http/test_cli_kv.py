"""The command line `python -m key_value_store`."""

import io
import json
import shlex
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from key_value_store import cli, cli_serve
from key_value_store.http.wire import path_of_key
from tests.kv.http.servers import Served, Wire, leader_of
from tests.pages import commands
from tools.ports import held_ports


@pytest.fixture
def run(capsysbinary):
    """Run the program, and return (exit code, stdout, stderr as text)."""

    def run(*argv):
        with pytest.raises(SystemExit) as end:
            sys.exit(cli.main(argv))
        out, err = capsysbinary.readouterr()
        return end.value.code or 0, out, err.decode()

    return run


@pytest.fixture
def asked(run, nodes, request, monkeypatch):
    """Run a command on a key of this test. The environment names the nodes."""
    monkeypatch.setenv("SPARK_CAS_KV_NODES", " ".join(each.address for each in nodes))
    return lambda command, *more: run(command, request.node.name, *more)


def test_put_get_cas_and_delete(asked):
    code, version, _ = asked("put", "1")
    assert code == 0
    assert asked("get")[:2] == (0, b"1")
    code, newer, _ = asked("cas", "2", "--version", version.decode().strip())
    assert (code, int(newer) > int(version)) == (0, True)
    code, out, stderr = asked("cas", "3", "--version", version.decode().strip())
    assert (code, out) == (3, b"")
    assert stderr.startswith("error: [VERSION_MISMATCH]")
    shown = json.loads(asked("get", "--json")[1])
    assert shown == {"value": "2", "version": int(newer)}
    assert asked("delete", "--version", str(int(newer)))[0] == 0
    assert asked("get") == (3, b"", "the key is absent\n")
    assert asked("cas", "4", "--absent")[0] == 0
    assert asked("cas", "5", "--absent")[0] == 3


@pytest.mark.full
def test_commands_of_the_readme_run(run, files, tmp_path):
    """Start two nodes, use them, and start one with a token and TLS, as examples/key_value_store/README.md says."""
    (files / "ca.pem").write_bytes((files / "cert.pem").read_bytes())
    with held_ports(3) as ports, ExitStack() as ending:
        first, second, secured = (f"127.0.0.1:{port}" for port in ports)
        own = {"127.0.0.1:8427": first, "127.0.0.1:8428": second, "0.0.0.0:8427": secured, "kv1:8427": secured}
        own |= {"/data/": f"{tmp_path}/", "/etc/kv": str(files)}
        lines = [replaced(each, own) for each in commands("examples/key_value_store/README.md")]
        assert {tuple(each[:3]) for each in lines} == {("python", "-m", "key_value_store")}
        [node, with_token] = [each[4:] for each in lines if each[3] == "serve"]
        other = replaced(node, {"node-1": "node-2", f"--listen {first}": f"--listen {second}"})
        with_token = replaced(with_token, {"node-1": "node-3"})
        for name, address, words in (("a", first, node), ("b", second, other), ("c", secured, with_token)):
            served = Served(tmp_path / name, address, words)
            ending.callback(served.end)
            served.wait_until_ready()
        secured_get, put, cas, get, delete = (each[3:] for each in lines if each[3] != "serve")
        assert run(*secured_get) == (3, b"", "the key is absent\n")
        code, version, _ = run(*put)
        assert code == 0
        assert run(*replaced(cas, {"--version 1": f"--version {version.decode()}"}))[0] == 0
        assert json.loads(run(*get)[1])["value"] == "LAX"
        assert run(*delete)[0] == 0


def replaced(words, own):
    """Return the words of a command with own addresses, folders and versions."""
    text = shlex.join(words)
    for example, value in own.items():
        text = text.replace(example, value)
    return shlex.split(text)


def test_bytes_are_unchanged(asked, monkeypatch):
    data = bytes(range(256))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert asked("put", "-")[0] == 0
    assert asked("get")[1] == data


def test_an_unknown_outcome_has_a_code_of_its_own(run, nodes):
    wire = Wire(leader_of(nodes, path_of_key(b"unknown")))
    wire.losing = {"PUT"}
    code, out, stderr = run("put", "unknown", "1", "--node", wire.address)
    wire.close()
    assert (code, out) == (6, b"")
    assert stderr.startswith("error: [UNKNOWN_OUTCOME]")


def test_no_node_responds(run):
    with held_ports(1) as [port]:
        code, _, stderr = run("get", "key", "--node", f"127.0.0.1:{port}", "--timeout", "0.2")
    assert (code, stderr.count("\n")) == (1, 1)
    assert stderr.startswith("error: [STORAGE] no node could do it")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["get", "key"], "--node"),
        (["get", "key", "--node", "localhost"], "host:port"),
        (["cas", "key", "1", "--node", "localhost:1"], "--version"),
        (["cas", "key", "1", "--node", "localhost:1", "--version", "1", "--absent"], "--version"),
        (["put", "spark_cas.kv/leader", "1"], "names leaders"),
        (["serve", "log", "--folder", "here", "--listen", "8427"], "HOST:PORT"),
        (["serve", "log", "--folder", "here", "--node", "hunter2"], "HOST:PORT"),
        (["serve", "--folder", "here"], "--bootstrap-servers"),
    ],
)
def test_a_wrong_call_exits_with_2(run, nodes, argv, expected):
    if "names leaders" in expected:
        argv = [*argv, "--node", nodes[0].address]
    code, _, stderr = run(*argv)
    assert code == 2
    assert expected in stderr
    assert "hunter2" not in stderr


def test_missing_log_is_reported(run, tmp_path):
    code, _, stderr = run(
        "serve", str(tmp_path / "nowhere"), "--folder", str(tmp_path / "a"), "--listen", "127.0.0.1:0"
    )
    assert code == 6
    assert stderr.startswith("error: [LOG_NOT_FOUND]")


def test_used_port_is_reported(run, nodes, tmp_path):
    code, _, stderr = run("serve", str(tmp_path), "--folder", str(tmp_path / "a"), "--listen", nodes[0].address)
    assert code == 2
    assert "in use" in stderr


def test_without_the_extra_the_server_names_it(run, monkeypatch):
    monkeypatch.setattr(cli_serve, "find_spec", lambda name: None)
    code, _, stderr = run("serve", "log", "--folder", "here")
    assert code == 2
    assert "pip install /path/to/the/clone/examples/key_value_store" in stderr


def test_help_warns_that_clients_are_not_authenticated(run):
    assert b"no authentication" in run("serve", "--help")[1]
