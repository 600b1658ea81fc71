"""Ports that are held for one server each, among all processes of the machine."""

import socket
import subprocess
import sys

import pytest

from spark_cas.testing import ports
from spark_cas.testing.ports import HOST, held_ports

IN_ANOTHER_PROCESS = """
import sys
from spark_cas.testing import ports
ports._PORTS = [int(each) for each in sys.argv[1:]]
with ports.held_ports(len(ports._PORTS)) as drawn:
    print(*drawn)
"""


def drawn_elsewhere(*among: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, *map(str, among)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_port_is_held_for_one_of_all_processes_until_it_is_let_go_of():
    with held_ports(1) as [port]:
        assert "no 1 free ports" in drawn_elsewhere(port).stderr
    assert drawn_elsewhere(port).stdout.split() == [str(port)]


def test_one_process_is_not_given_a_port_twice(monkeypatch):
    with held_ports(3) as drawn:
        pass
    monkeypatch.setattr(ports, "_PORTS", drawn[:1] * 20 + drawn[1:])
    with held_ports(1) as held, held_ports(2) as others, pytest.raises(OSError, match="free ports"), held_ports(1):
        pass
    assert {*held, *others} == {*drawn}


def test_servers_listen_on_a_port_that_is_held_one_after_the_other():
    with held_ports(1) as [port]:
        for _ in range(2):
            with socket.create_server((HOST, port)) as server, socket.create_connection((HOST, port), 10) as client:
                server.accept()[0].close()
                assert client.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, port), 10)
