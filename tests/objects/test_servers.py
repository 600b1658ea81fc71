"""Tests that need real servers: credentials, permissions, addresses, and a writer that is killed during a put."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from spark_cas.core.errors import AccessDeniedError, OptionError, StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.append_once import append_once
from spark_cas.log.load.locking import Applicant, acquire_lock, process_name, release_lock
from spark_cas.log.objects import ObjectLog
from spark_cas.log.spec import LogSpec
from spark_cas.programs.errors import ExitCode
from tests.objects import killed_writer
from tests.objects.documented_rights import Users, documented_rights
from tests.objects.servers import AZURE_KEY, moto
from tests.support import token_provider
from tests.support.loads import rows_of, run_job
from tests.support.programs import run_cli
from tests.support.writing import JobWriter, append_foreign, plan_of, table_of, values_in

CANARY = "canary-of-a-secret"
FUNCTION = f"function:{token_provider.__name__}:password"


def refused(spec, match):
    """Check that each possible first request fails with a readable error, without any secret or address."""
    for ask in (lambda log: log.layout(), lambda log: log.create(1), lambda log: log.jobs()):
        with pytest.raises(StorageError, match=rf"^\[(STORAGE|ACCESS_DENIED)\] .*{match}") as caught:
            ask(ObjectLog(spec))
        shown = f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
        for secret in (CANARY, AZURE_KEY, "Signature", "127.0.0.1", "http"):
            assert secret not in shown
        assert caught.value.__suppress_context__, "the store's own text is not printed below it"


@pytest.mark.s3
def test_s3_refuses_wrong_credentials():
    with moto(INITIAL_NO_AUTH_ACTION_COUNT="1") as served:
        refused(served.spec(), "refused the credentials")


@pytest.mark.azure
def test_azure_refuses_wrong_credentials(azure):
    wrong = "AAAA" + AZURE_KEY[4:]
    refused(azure.spec(azure_storage_account_key=wrong), "refused the credentials")


@pytest.mark.s3
def test_a_bucket_that_does_not_exist(s3):
    refused(LogSpec.parse("s3://none/flights", s3.options), "no such bucket")


@pytest.mark.azure
def test_a_container_that_does_not_exist(azure):
    refused(LogSpec.parse("az://none/flights", azure.options), "no such bucket or container")


@pytest.mark.parametrize("listening", [False, True], ids=["refusing", "not answering"])
def test_address_without_a_server(listening):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not listening:
            server.close()
        options = {
            "aws_endpoint": f"http://127.0.0.1:{port}",
            "aws_access_key_id": "writer",
            "aws_secret_access_key": CANARY,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }
        if listening:
            options["retry_timeout"] = "2s"  # the server may still answer
        waiting = fill_backlog(server) if listening else []
        with pytest.raises(StorageError, match=r"^\[STORAGE\] .*did not answer") as caught:
            ObjectLog(LogSpec.parse("s3://logs/flights", options)).layout()
        assert CANARY not in f"{caught.value!r} {caught.value}"
        for each in waiting:
            each.close()


def fill_backlog(server):
    """Fill the backlog, so that the server accepts no more connections."""
    server.listen(0)
    waiting = []
    for _ in range(4):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(server.getsockname())
        waiting.append(client)
    return waiting


@pytest.fixture(scope="module")
def users():
    with moto(INITIAL_NO_AUTH_ACTION_COUNT=f"{Users.UNCHECKED}") as served:
        yield Users(served)


def new_log(users):
    """Create a log with two complete jobs and the lock of a third. Return its spec with all rights."""
    spec = users.served.spec(**users.owner)
    log = ObjectLog(spec)
    log.create(2)
    for job in ("first", "second"):
        run_job(log, job, rows_of(7, 0, 1))
    assert lock_of(log, "stuck") is not None
    return spec


def lock_of(log, job):
    return acquire_lock(log, Applicant(job, "run", process_name(os.getpid())), ExpectedOffsets("end"))


def load(spec):
    log = ObjectLog(LogSpec.parse(f"{spec.url}/new", dict(spec.store_options)))
    log.create(2)
    lock = lock_of(log, "load")
    run_job(log, "load", rows_of(7, 0, 1))
    release_lock(log, lock)
    assert log.load_locks().held == ()


def append_next(spec):
    append_once(ObjectLog(spec), 0, table_of("a"), job="once", expected_offset=14)


def command(name, *arguments):
    def run(spec):
        options = [f"--log-option=store.{name}={value}" for name, value in spec.store_options]
        ended = run_cli(name, *arguments, spec.url, *options)
        if ended.code == ExitCode.ACCESS_DENIED:
            raise AccessDeniedError(ended.err)
        assert ended.code == 0, ended

    return run


OPERATIONS = {
    "read": ("reader", command("read")),
    "tail": ("reader", command("tail")),
    "describe": ("reader", command("describe")),
    "offsets": ("reader", command("offsets")),
    "progress": ("reader", command("progress")),
    "jobs": ("reader", command("jobs")),
    "load": ("writer", load),
    "append_once": ("writer", append_next),
    "expand": ("writer", command("expand", "--partitions=3")),
    "abort": ("writer", command("abort", "stuck")),
    "trim": ("cleanup", command("trim", "--partition=0", "--before=8")),
    "forget": ("cleanup", command("forget", "first", "--force")),
}


@pytest.mark.s3
@pytest.mark.parametrize("name", OPERATIONS)
def test_documented_rights_are_sufficient_and_necessary(users, name):
    role, operation = OPERATIONS[name]
    spec = new_log(users)
    rights = documented_rights(role, spec)
    for missing in rights:
        if (name, missing) != ("forget", "s3:PutObject"):
            fewer = {action: on for action, on in rights.items() if action != missing}
            with pytest.raises(AccessDeniedError):
                operation(users.as_user(spec, fewer))
    if name == "forget":
        del rights["s3:PutObject"]
    operation(users.as_user(spec, rights))


@pytest.mark.s3
@pytest.mark.parametrize("how", ["env", "file", "function"])
def test_secrets_by_reference(s3, monkeypatch, tmp_path, how):
    monkeypatch.setenv("LOG_SECRET", CANARY)
    monkeypatch.setattr(token_provider, "password", lambda: CANARY)
    (tmp_path / "secret").write_text(f"{CANARY}\n")
    where = {"env": "env:LOG_SECRET", "file": f"file:{tmp_path}/secret", "function": FUNCTION}[how]
    spec = s3.spec(aws_secret_access_key=where)
    log = ObjectLog(spec)
    log.create(1)
    append_foreign(log, 0, "a")
    assert values_in(ObjectLog(spec), 0) == ["a"]
    assert CANARY not in repr(spec)


@pytest.mark.azure
@pytest.mark.parametrize("where", ["env:LOG_SECRET", FUNCTION])
def test_azure_secrets_by_reference_are_really_used(azure, monkeypatch, where):
    monkeypatch.setenv("LOG_SECRET", AZURE_KEY)
    monkeypatch.setattr(token_provider, "password", lambda: AZURE_KEY)
    log = ObjectLog(azure.spec(azure_storage_account_key=where))
    log.create(1)
    append_foreign(log, 0, "a")
    assert values_in(log, 0) == ["a"]


@pytest.mark.parametrize("where", ["env:NO_SUCH_VARIABLE", "file:/no/such/file", "function:no.such:f"])
def test_a_reference_that_leads_nowhere_is_named_by_its_option(where):
    spec = LogSpec.parse("s3://logs/flights", {"aws_secret_access_key": where})
    with pytest.raises(OptionError, match=r"store\.aws_secret_access_key .*(refers to|names)"):
        ObjectLog(spec)


def test_an_unknown_setting():
    with pytest.raises(OptionError, match=r"not a setting of this store"):
        ObjectLog(LogSpec.parse("s3://logs/flights", {"aws_no_such_thing": CANARY}))


class Holding(BaseHTTPRequestHandler):
    """A proxy between a writer and S3. While ``hold`` is set, it answers no put of a chunk.

    S3 stores such a chunk only if ``after`` is True.
    """

    protocol_version = "HTTP/1.1"
    target = ""
    after = False
    hold = threading.Event()
    held = threading.Event()

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        holding = self.command == "PUT" and "/partition" in self.path and self.hold.is_set()
        if holding and not self.after:
            self.held.set()
            self.close_connection = True
            return
        server = http.client.HTTPConnection(self.target, timeout=30)
        # Keep all headers including the host, because the request is signed.
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            server.putheader(name, value)
        server.endheaders(body)
        reply = server.getresponse()
        data = reply.read()
        server.close()
        if holding:
            self.held.set()
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date", "server", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(reply.getheader("Content-Length") or len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer  # noqa: N815

    def log_message(self, *_):
        """Print nothing."""


@pytest.mark.s3
@pytest.mark.parametrize("stored", [True, False])
def test_a_writer_killed_while_its_put_is_on_the_way(s3, stored):
    spec = s3.spec()
    log = ObjectLog(spec)
    log.create(1)
    plan = log.record_plan(plan_of(log, "job"))
    handler: Any = type(
        "Between",
        (Holding,),
        {
            "target": s3.endpoint.removeprefix("http://"),
            "after": stored,
            "hold": threading.Event(),
            "held": threading.Event(),
        },
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        options = dict(spec.store_options) | {"aws_endpoint": f"http://127.0.0.1:{proxy.server_port}"}
        command = [
            sys.executable,
            "-m",
            "tests.objects.killed_writer",
            spec.url,
            json.dumps(options),
            "within the put",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            try:
                assert writer.stdout is not None
                assert writer.stdout.readline() == "putting\n"
                handler.hold.set()
                assert handler.held.wait(30)
            finally:
                writer.send_signal(signal.SIGKILL)
        proxy.shutdown()
    chunks = killed_writer.KILLED_AT + stored
    expected = [f"{chunk}{end}" for chunk in range(chunks) for end in ("", "'")]
    assert values_in(ObjectLog(spec), 0) == expected
    again = JobWriter(ObjectLog(spec), plan)
    assert again.claim.progress is not None
    assert (again.claim.progress.chunks, again.claim.progress.rows) == (chunks, 2 * chunks)
    again.must_append("on")
    assert values_in(log, 0) == [*expected, "on"]
