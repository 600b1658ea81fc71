"""Records through a broker that verifies the signed tokens of Amazon MSK.

`MskTokenValidator.java` verifies them in the broker, with the secret key of the one AWS user that may connect.
"""

import subprocess
import time
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path

import botocore.auth
import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from spark_cas import ConditionalLogSource, append_once, open_log, raise_for_outcome
from spark_cas.core.errors import StorageError
from spark_cas.log.backend import Backend
from spark_cas.log.kafka.client import tokens
from spark_cas.log.kafka.settings import msk
from tests.kafka.clients import create_topic
from tests.long import full
from tests.support.writing import table_of, values_in
from tools.kafka_broker import KafkaBroker
from tools.kafka_broker.jars import java, kafka_jars

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

VALIDATOR = Path(__file__).with_name("MskTokenValidator.java")
USER = {
    "AWS_ACCESS_KEY_ID": "AKIDLOADER",
    "AWS_SECRET_ACCESS_KEY": "canary-secret",
    "AWS_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
AT_ONCE = 60
"""In seconds: half of the time that the log retries other errors. One request takes up to 10 s."""
BROKER = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "oauthbearer.sasl.server.callback.handler.class": VALIDATOR.stem,
    "oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'unsecuredLoginStringClaim_sub="broker" accessKey="{USER["AWS_ACCESS_KEY_ID"]}" '
        f'secretKey="{USER["AWS_SECRET_ACCESS_KEY"]}" region="{USER["AWS_REGION"]}";'
    ),
}


@pytest.fixture(scope="module")
def broker_of_msk(conf, tmp_path_factory):
    """A broker that accepts only tokens of Amazon MSK, except at its first listener."""
    compiler = Path(java()).resolve().with_name("javac")
    if not compiler.exists():
        pytest.fail(f"the validator of tokens must be compiled, and this Java has no compiler: {compiler} is missing")
    folder = tmp_path_factory.mktemp("msk")
    subprocess.run(
        [compiler, "-Xlint:all", "-Werror", "-d", folder, "-cp", f"{kafka_jars()}/*", VALIDATOR], check=True
    )
    settings = {f"listener.name.msk.{name}": value for name, value in BROKER.items()}
    with KafkaBroker(conf, settings=settings, secured={"MSK": "SASL_PLAINTEXT"}, classes=folder) as broker:
        yield broker


@pytest.fixture(autouse=True)
def aws(monkeypatch, tmp_path):
    """The environment of the user, without a token of an earlier test."""
    monkeypatch.setattr(tokens, "_OWN", {})
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name, value in USER.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def settings_of_java(login: str = "") -> dict[str, str]:
    """Return the settings of users of Amazon's Java library."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{msk.PACKAGE}IAMLoginModule required {login};",
        "sasl.client.callback.handler.class": f"{msk.PACKAGE}IAMClientCallbackHandler",
    }


def append(log: Backend, value: str) -> None:
    end = log.bounds(0).end_offset
    raise_for_outcome(append_once(log, 0, table_of([value]), job=value, expected_offset=end), 0)


def values_without_token(broker: KafkaBroker, topic: str) -> list[str]:
    with open_log(f"kafka://{broker.bootstrap}/{topic}") as log:
        return values_in(log, 0)


def log_in_with_variables(_aws, _folder):
    return ""


def log_in_with_a_session(aws, _folder):
    aws.setenv("AWS_SESSION_TOKEN", "canary-session/+==")
    return ""


def log_in_with_a_profile(aws, folder):
    """Write the profile, and return the option of the login module."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        aws.delenv(name)
    lines = [f"{name.lower()} = {value}" for name, value in USER.items() if name != "AWS_REGION"]
    text = "\n".join(["[profile loader]", f"region = {USER['AWS_REGION']}", *lines])
    (folder / "AWS_CONFIG_FILE").write_text(text)
    return "awsProfileName=loader"


@pytest.mark.parametrize("log_in", [log_in_with_variables, *full(log_in_with_a_session, log_in_with_a_profile)])
def test_records_are_appended_and_read(broker_of_msk, aws, tmp_path, log_in):
    topic = create_topic(broker_of_msk.bootstrap)
    settings = settings_of_java(log_in(aws, tmp_path))
    with open_log(f"kafka://{broker_of_msk.address_at('MSK')}/{topic}", settings) as log:
        append(log, "one")
        append(log, "two")
        assert values_in(log, 0) == ["one", "two"]
    assert values_without_token(broker_of_msk, topic) == ["one", "two"]


def send_a_wrong_secret(aws):
    aws.setenv("AWS_SECRET_ACCESS_KEY", "canary-wrong")


def send_another_key(aws):
    aws.setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER")


def send_another_region(aws):
    aws.setenv("AWS_REGION", "eu-west-2")


def send_another_action(aws):
    aws.setattr(MSKAuthTokenProvider, "ACTION_NAME", "kafka-cluster:ReadData")


def send_a_token_of_yesterday(aws):
    yesterday = datetime.now(UTC) - timedelta(days=1)
    original = msk.token

    def token(**arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(botocore.auth, "get_current_datetime", lambda **_: yesterday.replace(tzinfo=None))
            text, expiry = original(**arguments)
        return text, expiry + 86_400

    aws.setattr(msk, "token", token)


def send_the_beginning_of_a_token(aws):
    original = msk.token

    def token(**arguments):
        text, expiry = original(**arguments)
        return text[: len(text) // 2], expiry

    aws.setattr(msk, "token", token)


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
def test_other_token_is_an_error_at_once(broker_of_msk, aws, send):
    topic = create_topic(broker_of_msk.bootstrap)
    send(aws)
    began = time.monotonic()
    with (
        pytest.raises(StorageError, match="refused the credentials") as refused,
        open_log(f"kafka://{broker_of_msk.address_at('MSK')}/{topic}", settings_of_java()) as log,
    ):
        append(log, "one")
    assert time.monotonic() - began < AT_ONCE
    assert "canary" not in "".join(traceback.format_exception(refused.value))
    assert values_without_token(broker_of_msk, topic) == []


class MskSource(ConditionalLogSource):
    """The data source, for workers with their own environment."""

    @classmethod
    def name(cls):
        return "msk"


@pytest.mark.spark
def test_workers_sign_their_own_tokens(broker_of_msk, spark, monkeypatch):
    for name, value in USER.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    spark.dataSource.register(MskSource)
    options = {
        "kafka.bootstrap.servers": broker_of_msk.address_at("MSK"),
        "topic": create_topic(broker_of_msk.bootstrap),
        **{f"kafka.{name}": value for name, value in settings_of_java().items()},
    }
    rows = spark.range(40).selectExpr("STRING(id) AS key", "STRING(id) AS value", "0 AS partition").coalesce(1)
    rows.write.format("msk").mode("append").options(**options, job="load", routed="true").save()
    read = spark.read.format("msk").options(**options).load()
    values = [row.value for row in read.selectExpr("STRING(value) AS value").collect()]
    assert sorted(values) == sorted(f"{number}" for number in range(40))
