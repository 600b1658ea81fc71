"""Options that name a topic and set up its clients: what is read from them and what is refused. No broker."""

import pytest

from spark_cas.core.errors import OptionError
from spark_cas.core.plan import ExpectedOffsets
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.spec import LogSpec
from spark_cas.spark.options import check_read, parse_read, parse_route, parse_write
from spark_cas.spark.read_range import ReadLimit, ReadRange

TOPIC = {"kafka.bootstrap.servers": "a:9092,b:9092", "topic": "flights"}
PATH = {"path": "/data/logs/flights"}
CANARY = "hunter2"
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="{CANARY}";'
SASL = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": JAAS,
}


@pytest.fixture(autouse=True)
def no_conf(monkeypatch):
    monkeypatch.delenv("SPARK_CAS_CONF", raising=False)


def refused(parse, options):
    with pytest.raises(OptionError) as caught:
        parse(options)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


def conf(tmp_path, text):
    file = tmp_path / "conditional-log.toml"
    file.write_text(text)
    return {"conf": str(file)}


def test_brokers_and_topic_are_an_address():
    spec = parse_write(TOPIC).spec
    assert spec == KafkaSpec("a:9092,b:9092", "flights")
    assert spec.url == "kafka://a:9092,b:9092/flights"
    assert parse_write({"path": spec.url}).spec == spec
    assert parse_write({**TOPIC, "kafka.bootstrap.servers": " a:9092 , b:9092,"}).spec == spec
    subscribed = {"kafka.bootstrap.servers": "a:9092,b:9092", "subscribe": "flights"}
    assert parse_read(subscribed).spec == parse_read(TOPIC).spec == spec


def test_every_option_of_a_topic_is_read():
    more = {"idprefix": "team-a", "claimtimeoutms": "5000", "transactiontimeoutms": "7000", "kafka.linger.ms": "5"}
    spec = parse_write({**TOPIC, **more}).spec
    assert spec == KafkaSpec("a:9092,b:9092", "flights", "team-a", (("linger.ms", "5"),), 5000, 7000)
    assert parse_write({"path": "kafka://a:9092,b:9092/flights", **more}).spec == spec


@pytest.mark.parametrize("parse", [parse_read, parse_write, parse_route])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({**TOPIC, **PATH}, "path and kafka.bootstrap.servers are both given"),
        ({**PATH, "topic": "flights"}, "path and topic are both given"),
        ({"topic": "flights"}, "topic is given without kafka.bootstrap.servers"),
    ],
)
def test_a_log_is_in_one_place(parse, options, said):
    text = refused(parse, options)
    assert said in text
    assert "load('/data/logs/flights')" in text
    assert "option('topic', 'flights')" in text


@pytest.mark.parametrize("parse", [parse_read, parse_write, parse_route])
def test_neither_shows_both_ways(parse):
    text = refused(parse, {})
    assert "load('/data/logs/flights')" in text
    assert "option('kafka.bootstrap.servers'" in text


def test_a_topic_has_one_name():
    assert "Leave subscribe out" in refused(parse_read, {**TOPIC, "subscribe": "flights"})


def test_brokers_without_a_topic_say_how_rows_for_several_are_written():
    text = refused(parse_write, {"kafka.bootstrap.servers": "a:9092"})
    assert "one write goes to one topic" in text
    assert "filter the frame by the column" in text


@pytest.mark.parametrize("key", ["topic", "subscribe"])
@pytest.mark.parametrize("value", ["flights,other", "flights.*", "", "a b", f"/{CANARY}"])
def test_one_topic_is_named_and_no_pattern(key, value):
    text = refused(parse_read, {"kafka.bootstrap.servers": "a:9092", key: value})
    assert "one topic" in text


@pytest.mark.parametrize("key", ["subscribepattern", "assign", "groupidprefix"])
def test_options_of_sparks_source_that_have_no_counterpart_say_what_has(key):
    assert "there is no option" in refused(parse_read, {**TOPIC, key: CANARY})


@pytest.mark.parametrize(
    "servers", ["", "a", "a:", f"{CANARY}", f"me:{CANARY}@a:9092", "kafka://a:9092", "a:9092/x", "SASL_SSL://a:9092"]
)
def test_brokers_are_hosts_and_ports(servers):
    assert "host:port" in refused(parse_write, {**TOPIC, "kafka.bootstrap.servers": servers})


@pytest.mark.parametrize(
    "url",
    [
        "kafka://a:9092",
        "kafka://a:9092/",
        "kafka:///flights",
        f"kafka://me:{CANARY}@a:9092/flights",
        f"kafka://a:9092/flights?sasl.password={CANARY}",
        f"kafka://a:9092/flights#{CANARY}",
        f"kafka://a:9092/flights/{CANARY}",
        f"kafka:{CANARY}",
    ],
)
def test_what_is_no_address_of_a_topic_is_refused(url):
    refused(parse_write, {"path": url})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({**PATH, "kafka.linger.ms": "5"}, "option kafka.linger.ms is for topics"),
        ({**PATH, "idprefix": "x"}, "option idPrefix is for topics"),
        ({**PATH, "transactiontimeoutms": "5"}, "option transactionTimeoutMs is for topics"),
        ({**TOPIC, "store.aws_region": "x"}, "option store.aws_region is for logs in an object store"),
        ({**TOPIC, "kafka.acks": "1"}, "kafka.acks may not be set"),
        ({**TOPIC, "kafka.transactional.id": CANARY}, "Use the option job"),
        ({**TOPIC, "kafka.plugin.library.paths": CANARY}, "kafka.plugin.library.paths may not be set"),
        ({**TOPIC, "kafka.linger.msec": CANARY}, "Did you mean kafka.linger.ms?"),
        ({**TOPIC, "kafka.bootstrap.server": CANARY}, "Did you mean kafka.bootstrap.servers?"),
        ({**TOPIC, "kafka.linger.ms": CANARY}, "kafka.linger.ms must be"),
        ({**TOPIC, "kafka.sasl.jaas.config": JAAS}, "kafka.security.protocol"),
        ({**TOPIC, **SASL, "kafka.sasl.mechanism": CANARY}, "kafka.sasl.mechanism"),
        ({**TOPIC, "idprefix": f"a/{CANARY}"}, "option idPrefix"),
        ({**TOPIC, "claimtimeoutms": CANARY}, "claimTimeoutMs must be"),
        ({**TOPIC, "startingoffsets": "earliest"}, "is one of read"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(options, said):
    assert said in refused(parse_write, options)


def test_a_secret_is_not_sent_in_the_clear():
    plain = JAAS.replace("scram.Scram", "plain.Plain")
    login = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": plain}
    in_the_clear = {**TOPIC, **login, "kafka.security.protocol": "SASL_PLAINTEXT"}
    assert "in the clear" in refused(parse_write, in_the_clear)


def test_secrets_are_not_shown():
    options = {**TOPIC, **SASL}
    parsed = (parse_write(options), parse_read(options))
    assert CANARY in str(parsed[0].spec.client_options if isinstance(parsed[0].spec, KafkaSpec) else "")
    assert CANARY not in repr(parsed) + str(parsed)
    assert CANARY not in parsed[0].spec.url


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, ExpectedOffsets("end")),
        ({"checkexpectedoffsets": "true"}, ExpectedOffsets("end")),
        ({"checkexpectedoffsets": "false"}, ExpectedOffsets("none")),
        ({"checkexpectedoffsets": "false", "expectedoffsets": "none"}, ExpectedOffsets("none")),
        ({"expectedoffsets": "none"}, ExpectedOffsets("none")),
    ],
)
@pytest.mark.parametrize("address", [TOPIC, PATH], ids=["topic", "path"])
def test_the_check_can_be_left_out(address, options, found):
    assert parse_write({**address, **options}).expected_offsets == found


@pytest.mark.parametrize("expected", ["end", '{"0": 1}'])
def test_no_check_goes_with_no_named_expectation(tmp_path, expected):
    given = {**TOPIC, "expectedoffsets": expected}
    assert "checkExpectedOffsets is false" in refused(parse_write, {**given, "checkexpectedoffsets": "false"})
    off = conf(tmp_path, "[logs.flights]\ncheckExpectedOffsets = false")
    assert "checkExpectedOffsets is false" in refused(parse_write, {**given, **off})
    on = {**given, **off, "checkexpectedoffsets": "true"}
    assert parse_write(on).expected_offsets == ExpectedOffsets.parse(expected)


def test_defaults_hold_for_the_topic_that_they_name_and_for_its_backend(tmp_path):
    file = conf(
        tmp_path,
        """
        [defaults]
        idPrefix = "team-a"
        claimTimeoutMs = 5
        store.aws_region = "eu-north-1"
        kafka.linger.ms = 1
        [logs.flights]
        kafka.security.protocol = "SSL"
        kafka.linger.ms = 2
        kafka.enable.metrics.push = false
        [logs."kafka://a:9092,b:9092/flights"]
        claimTimeoutMs = 6
        [logs.other]
        claimTimeoutMs = 7
        """,
    )
    settings = (("enable.metrics.push", "false"), ("linger.ms", "3"), ("security.protocol", "ssl"))
    spec = KafkaSpec("a:9092,b:9092", "flights", "team-a", settings, 6)
    assert parse_read({**TOPIC, **file, "kafka.linger.ms": "3"}).spec == spec
    assert parse_read({"path": spec.url, **file, "kafka.linger.ms": "3"}).spec == spec
    assert parse_read({**PATH, **file}).spec == LogSpec("file:///data/logs/flights", (("aws_region", "eu-north-1"),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[defaults]\nkafka.bootstrap.servers = "hunter2"', "may not set kafka.bootstrap.servers"),
        ('[defaults]\ntopic = "hunter2"', "may not set topic"),
        ('[logs.other]\nkafka.transactional.id = "hunter2"', "kafka.transactional.id may not be set"),
        ('[logs.flights]\nkafka.linger.ms = "hunter2"', "kafka.linger.ms must be"),
    ],
)
def test_the_file_of_defaults_is_checked(tmp_path, text, said):
    assert said in refused(parse_write, {**TOPIC, **conf(tmp_path, text)})


def test_offsets_to_read():
    options = parse_read({**TOPIC, "startingoffsets": '{"flights": {"0": 3}}', "failondataloss": "false"})
    limits = ReadLimit(None, "flights", ((0, 3),)), ReadLimit.parse("latest")
    assert options.range == ReadRange(*limits, fail_on_data_loss=False)
    assert parse_read(PATH).range == ReadRange()
    assert "earliest, latest, or JSON" in refused(parse_read, {**TOPIC, "endingoffsets": CANARY})
    assert "view=records" in refused(parse_read, {**TOPIC, "view": "offsets", "endingoffsets": "latest"})


def test_route_hands_on_what_says_where_the_log_is():
    options = parse_route({**TOPIC, **SASL, "idprefix": "p", "job": "j", "transactiontimeoutms": "5"})
    assert dict(options.reading) == {**TOPIC, **SASL, "idprefix": "p"}
    assert CANARY not in repr(options)


def test_a_table_can_be_created_with_options():
    assert check_read(TOPIC) == ("records", False)
