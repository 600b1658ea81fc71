"""Ports that are reserved for one server each, among all processes of the machine."""

import socket
import subprocess
import sys

import pytest

from tools.ports import HOST, held_ports


def is_free(port):
    with socket.socket() as another:
        try:
            another.bind((HOST, port))
        except OSError:
            return False
        return True


def test_port_is_reserved_until_it_is_released():
    with held_ports(2) as ports:
        assert len({*ports}) == 2
        assert [*map(is_free, ports)] == [False, False]
    assert [*map(is_free, ports)] == [True, True]


def test_preferred_port_is_used_if_it_is_free():
    with held_ports(1) as [port]:
        pass
    with held_ports(2, port) as [first, second]:
        assert first == port != second
        with held_ports(1, port) as [another]:
            assert another not in (first, second)


def test_a_process_that_is_killed_holds_a_port_no_longer():
    program = "from tools.ports import held_ports\n"
    program += "with held_ports(1) as [port]: print(port, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        port = int(holder.stdout.readline())
        assert not is_free(port)
        holder.kill()
        holder.wait(60)
        assert is_free(port)


def test_servers_listen_on_a_port_that_is_held_one_after_the_other():
    with held_ports(1) as [port]:
        for _ in range(2):
            with socket.create_server((HOST, port)) as server, socket.create_connection((HOST, port), 10) as client:
                server.accept()[0].close()
                assert client.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, port), 10)
