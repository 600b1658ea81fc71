"""Tokens of Amazon MSK and of functions: the settings that select them, and their use by clients without a broker."""

import base64
import os
import subprocess
import sys
import time
import traceback
import weakref
from contextlib import suppress
from functools import partial
from threading import Event
from urllib.parse import parse_qs, urlsplit

import pytest

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.client import tokens
from spark_cas.log.kafka.client.clients import PlainProducer
from spark_cas.log.kafka.client.configuration import settings_of
from spark_cas.log.kafka.settings.address import kafka_spec, parse_kafka_url
from spark_cas.log.kafka.settings.client_settings import Client, log_ignored
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.collected_client import MADE
from tests.support import token_provider
from tests.support.token_provider import LIFETIME_SECONDS

pytestmark = pytest.mark.usefixtures("provided_tokens")

MSK = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"
SERVERLESS = "boot-abc123.c1.kafka-serverless.us-east-2.amazonaws.com:9098"
PRIVATE = "kafka.example.com:9098"
IAM = "software.amazon.msk.auth.iam."
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
PROVIDER = f"{token_provider.__name__}:token"


@pytest.fixture
def aws(monkeypatch, tmp_path):
    """An environment with AWS credentials, and two profiles."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").write_text(
        "[profile loader]\nregion = ap-south-1\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = canary\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDDEFAULT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    return monkeypatch


def msk(servers: str = MSK, options: str = "", shaded: str = "") -> KafkaSpec:
    """Return the spec for the settings that users of Amazon's Java library have."""
    return kafka_spec(
        servers,
        "flights",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": f"{shaded}{IAM}IAMLoginModule required {options};",
            "sasl.client.callback.handler.class": f"{shaded}{IAM}IAMClientCallbackHandler",
        },
    )


def signed(spec: KafkaSpec) -> tuple[str, str, str, float]:
    """Return the host, the region and the access key of the signed URL in a token, and its expiry time."""
    token, expiry, *_ = settings_of(spec, Client.CONSUMER)["oauth_cb"]("")
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    query = parse_qs(url.query)
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Signature"]
    key, _, region, service, _ = query["X-Amz-Credential"][0].split("/")
    assert service == "kafka-cluster"
    return url.netloc, region, key, expiry


@pytest.mark.parametrize(
    ("spec", "region", "key"),
    [
        (msk(MSK), "eu-west-1", "AKIDDEFAULT"),
        (msk(MSK, shaded="shadedmskiam."), "eu-west-1", "AKIDDEFAULT"),
        (msk(SERVERLESS), "us-east-2", "AKIDDEFAULT"),
        (msk(MSK, "awsProfileName=loader"), "eu-west-1", "AKIDPROFILE"),
        (msk(PRIVATE, 'awsProfileName="loader"'), "ap-south-1", "AKIDPROFILE"),
    ],
)
def test_settings_of_amazons_java_library_sign_a_token(aws, spec, region, key):
    host, signed_region, signed_key, expiry = signed(spec)
    assert (host, signed_region, signed_key) == (f"kafka.{region}.amazonaws.com", region, key)
    assert 880 < expiry - time.time() <= 900


def test_region_may_be_in_the_environment(aws):
    aws.setenv("AWS_REGION", "sa-east-1")
    assert signed(msk(PRIVATE))[1] == "sa-east-1"
    assert signed(msk(MSK))[1] == "eu-west-1", "that of the brokers is right"


def test_callback_handler_of_amazon_is_reported_as_unused(caplog):
    log_ignored.cache_clear()
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.client.callback.handler.class": f"{IAM}IAMClientCallbackHandler",
    }
    parse_kafka_url(f"kafka://{MSK}/flights", settings)
    (told,) = [each.getMessage() for each in caplog.records]
    assert "sasl.client.callback.handler.class" in told


def refused(make) -> str:
    with pytest.raises(OptionError) as error:
        make()
    assert "canary" not in "".join(traceback.format_exception(error.value))
    return str(error.value)


def test_what_is_missing_for_amazon_is_named(aws):
    def fails(spec: KafkaSpec) -> str:
        return refused(lambda: settings_of(spec, Client.ADMIN))

    assert "AWS_REGION" in fails(msk(PRIVATE))
    assert "ProfileNotFound" in fails(msk(MSK, "awsProfileName=canary"))
    aws.delenv("AWS_ACCESS_KEY_ID")
    assert "no AWS credentials" in fails(msk())
    aws.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    assert "spark-cas[msk]" in fails(msk())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("awsStsRegion=canary", "AWS profile"),
        ('awsProfileName=""', "empty value"),
        ("awsProfileName=canary awsRoleArn=canary", "Give one"),
    ],
)
def test_option_of_amazons_login_without_an_equivalent_is_rejected(options, said):
    assert said in refused(lambda: msk(options=options))


@pytest.mark.parametrize(
    ("given", "provider", "said"),
    [
        ({}, PROVIDER, "needs kafka.security.protocol SASL_SSL"),
        ({"security.protocol": "SSL"}, PROVIDER, "needs kafka.security.protocol SASL_SSL"),
        ({**BEARER, "sasl.mechanism": "PLAIN"}, PROVIDER, "not for PLAIN"),
        ({**BEARER, "sasl.mechanism": "AWS_MSK_IAM"}, PROVIDER, "not for AWS_MSK_IAM"),
        ({**BEARER, "sasl.oauthbearer.scope": "canary"}, PROVIDER, "not for option tokenProvider"),
        ({**BEARER, "sasl.jaas.config": f"{OAUTH} clientSecret=canary;"}, PROVIDER, "only extension_<name>"),
        (BEARER, "canary", "must be package.module:function"),
        (BEARER, "canary:f?region=x", "must be package.module:function"),
        (BEARER, "", "must be package.module:function"),
        ({**BEARER, "security.protocol": "SASL_PLAINTEXT"}, PROVIDER, "in the clear"),
    ],
)
def test_token_provider_that_cannot_work_is_rejected(given, provider, said):
    assert said in refused(lambda: kafka_spec(PRIVATE, "flights", given, token_provider=provider))


def test_extensions_of_the_login_are_sent_with_the_token():
    login = {**BEARER, "sasl.jaas.config": f'{OAUTH} extension_logicalCluster="lkc-1";'}
    spec = kafka_spec(PRIVATE, "flights", login, token_provider=PROVIDER)
    token, expiry, _, extensions = settings_of(spec, Client.PRODUCER)["oauth_cb"]("")
    assert token.startswith(token_provider.HEADER)
    assert expiry > time.time()
    assert extensions == {"logicalCluster": "lkc-1"}
    assert token not in repr(spec) + repr(settings_of(spec, Client.PRODUCER))


def test_idle_producer_refreshes_its_token_without_a_poll(provided_tokens):
    producer = PlainProducer(
        kafka_spec("127.0.0.1:1", "flights", BEARER, token_provider=PROVIDER), None, idempotent=False
    )
    time.sleep(LIFETIME_SECONDS)
    producer.close()
    assert len(provided_tokens) == 2


def test_clients_of_a_process_share_a_token(provided_tokens):
    spec = kafka_spec(PRIVATE, "flights", BEARER, token_provider=PROVIDER)
    for client in Client:
        settings_of(spec, client)
    assert len(provided_tokens) == 1


def test_function_that_does_not_return_is_an_error(set_timing):
    set_timing(longest_request=0.1)
    name = f"{token_provider.__name__}:hangs"
    assert "did not return" in refused(lambda: tokens.tokens_of(name))


def test_failing_function_leaves_the_present_token_until_it_expires(monkeypatch, caplog):
    monkeypatch.setattr(token_provider, "LIFETIME_SECONDS", 0.5)
    provider = tokens.tokens_of(f"{token_provider.__name__}:fails_later")
    first, expiry, *_ = provider("")
    time.sleep(0.6 * (expiry - time.time()))
    assert provider("")[0] == first
    provider.check()
    assert "RuntimeError" in refused(lambda: provider.check(refused=True))
    assert "RuntimeError" in caplog.text
    assert "canary" not in caplog.text
    time.sleep(expiry - time.time() + 0.05)
    assert "RuntimeError" in refused(lambda: provider(""))
    assert "RuntimeError" in refused(provider.check)
    for report in (provider.check, partial(provider, "")):
        assert referred_by_a_caller(report)() is None, "the failure keeps its caller, and a client keeps the provider"


def referred_by_a_caller(report):
    """Return a weak reference to an object of a function that receives the failure."""
    client = Event()
    with suppress(OptionError):
        report()
    return weakref.ref(client)


def test_error_does_not_keep_the_exception_of_the_function():
    for function in ("raises", "exits"):
        with pytest.raises(OptionError) as error:
            tokens.tokens_of(f"{token_provider.__name__}:{function}")
        assert error.value.__context__ is None


@pytest.mark.parametrize("client", MADE)
def test_client_that_is_collected_in_its_own_thread_does_not_abort_the_process(client):
    command = [sys.executable, "-W", "ignore", "-m", "tests.kafka.collected_client", client]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr
