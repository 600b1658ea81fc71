"""Records through a broker that verifies the signed tokens of Amazon MSK.

The listener `MSK` of `authenticating` verifies them with the secret key of the one AWS user that may connect.
"""

import threading
import time
import traceback
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import botocore.auth
import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from spark_cas import append_once, open_log, raise_for_outcome
from spark_cas.core.errors import StorageError
from spark_cas.log.backend import Backend
from spark_cas.log.kafka.settings import msk
from tests.kafka.authenticating import AWS_USER, MSK, Authenticating
from tests.kafka.clients import create_topic
from tests.long import full
from tests.support.writing import table_of, values_in

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180), pytest.mark.usefixtures("msk_user")]

AT_ONCE = 60
"""In seconds: half of the time that the log retries other errors. One request takes up to 10 s."""


def settings_of(secured: Authenticating, login: str = "") -> dict[str, str]:
    """Return the settings of the user, with an option of the login module."""
    settings = secured.settings[MSK]
    return settings | {"sasl.jaas.config": settings["sasl.jaas.config"].replace(";", f" {login};")}


def append(log: Backend, value: str) -> None:
    end = log.bounds(0).end_offset
    raise_for_outcome(append_once(log, 0, table_of([value]), job=value, expected_offset=end), 0)


def values_without_token(secured: Authenticating, topic: str) -> list[str]:
    with open_log(f"kafka://{secured.open}/{topic}") as log:
        return values_in(log, 0)


def log_in_with_variables(_aws, _folder):
    return ""


def log_in_with_a_session(msk_user, _folder):
    msk_user.setenv("AWS_SESSION_TOKEN", "canary-session/+==")
    return ""


def log_in_with_a_profile(msk_user, folder):
    """Write the profile, and return the option of the login module."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        msk_user.delenv(name)
    lines = [f"{name.lower()} = {value}" for name, value in AWS_USER.items() if name != "AWS_REGION"]
    text = "\n".join(["[profile loader]", f"region = {AWS_USER['AWS_REGION']}", *lines])
    (folder / "AWS_CONFIG_FILE").write_text(text)
    return "awsProfileName=loader"


class _Sts(BaseHTTPRequestHandler):
    """A double of AWS's STS in one region: it returns the key of `AWS_USER` to another user, for the role."""

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        requested = [form.get(name) for name in ("Action", "RoleArn", "RoleSessionName")]
        signed = (
            f"AKIDOTHER/{datetime.now(UTC):%Y%m%d}/{AWS_USER['AWS_REGION']}/sts/" in self.headers["Authorization"]
        )
        is_valid = signed and requested == [["AssumeRole"], [ROLE], ["nightly"]]
        key, secret = AWS_USER["AWS_ACCESS_KEY_ID"], AWS_USER["AWS_SECRET_ACCESS_KEY"]
        body = (
            f"<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>{key}</AccessKeyId>"
            f"<SecretAccessKey>{secret}</SecretAccessKey><SessionToken>canary-session</SessionToken>"
            "<Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
        ).encode()
        self.send_response(200 if is_valid else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


ROLE = "arn:aws:iam::123456789012:role/loader"


@pytest.fixture
def sts():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Sts) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_role_that_the_user_assumes_appends(authenticating, msk_user, sts):
    topic = create_topic(authenticating.open)
    msk_user.setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER")
    msk_user.setenv("AWS_SECRET_ACCESS_KEY", "canary-other")
    msk_user.setenv("AWS_ENDPOINT_URL_STS", sts)
    settings = settings_of(authenticating, f'awsRoleArn="{ROLE}" awsRoleSessionName="nightly"')
    with open_log(f"kafka://{authenticating.servers[MSK]}/{topic}", settings) as log:
        append(log, "one")
    assert values_without_token(authenticating, topic) == ["one"]


@pytest.mark.parametrize("log_in", [log_in_with_variables, *full(log_in_with_a_session, log_in_with_a_profile)])
def test_records_are_appended_and_read(authenticating, msk_user, tmp_path, log_in):
    topic = create_topic(authenticating.open)
    settings = settings_of(authenticating, log_in(msk_user, tmp_path))
    with open_log(f"kafka://{authenticating.servers[MSK]}/{topic}", settings) as log:
        append(log, "one")
        append(log, "two")
        assert values_in(log, 0) == ["one", "two"]
    assert values_without_token(authenticating, topic) == ["one", "two"]


def send_a_wrong_secret(msk_user):
    msk_user.setenv("AWS_SECRET_ACCESS_KEY", "canary-wrong")


def send_another_key(msk_user):
    msk_user.setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER")


def send_another_region(msk_user):
    msk_user.setenv("AWS_REGION", "eu-west-2")


def send_another_action(msk_user):
    msk_user.setattr(MSKAuthTokenProvider, "ACTION_NAME", "kafka-cluster:ReadData")


def send_a_token_of_yesterday(msk_user):
    yesterday = datetime.now(UTC) - timedelta(days=1)
    original = msk.token

    def token(**arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(botocore.auth, "get_current_datetime", lambda **_: yesterday.replace(tzinfo=None))
            text, expiry = original(**arguments)
        return text, expiry + 86_400

    msk_user.setattr(msk, "token", token)


def send_the_beginning_of_a_token(msk_user):
    original = msk.token

    def token(**arguments):
        text, expiry = original(**arguments)
        return text[: len(text) // 2], expiry

    msk_user.setattr(msk, "token", token)


@pytest.mark.parametrize(
    "send",
    [
        send_a_wrong_secret,
        *full(
            *(send_another_key, send_another_region, send_another_action),
            *(send_a_token_of_yesterday, send_the_beginning_of_a_token),
        ),
    ],
)
def test_other_token_is_an_error_at_once(authenticating, msk_user, send):
    topic = create_topic(authenticating.open)
    send(msk_user)
    began = time.monotonic()
    with (
        pytest.raises(StorageError, match="refused the credentials") as refused,
        open_log(f"kafka://{authenticating.servers[MSK]}/{topic}", settings_of(authenticating)) as log,
    ):
        append(log, "one")
    assert time.monotonic() - began < AT_ONCE
    assert "canary" not in "".join(traceback.format_exception(refused.value))
    assert values_without_token(authenticating, topic) == []


@pytest.mark.spark
def test_workers_sign_their_own_tokens(authenticating, spark):
    options = {
        "kafka.bootstrap.servers": authenticating.servers[MSK],
        "topic": create_topic(authenticating.open),
        **{f"kafka.{name}": value for name, value in settings_of(authenticating).items()},
    }
    rows = spark.range(40).selectExpr("STRING(id) AS key", "STRING(id) AS value", "0 AS partition").coalesce(1)
    rows.write.format("conditional-log").mode("append").options(**options, job="load", routed="true").save()
    read = spark.read.format("conditional-log").options(**options).load()
    values = [row.value for row in read.selectExpr("STRING(value) AS value").collect()]
    assert sorted(values) == sorted(f"{number}" for number in range(40))
