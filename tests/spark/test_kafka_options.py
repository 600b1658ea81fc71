"""Options that select topics and configure clients: the parsed values and the rejected ones. No broker."""

from dataclasses import replace

import pytest

from spark_cas.core.errors import ConflictError, OptionError, error_from_text
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.plan import Layout
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.spec import LogSpec
from spark_cas.options.parse import (
    check_read,
    error_of_topics,
    names_no_topic,
    parse_read,
    parse_route,
    parse_write,
    parse_write_stream,
    parsed_by_topic,
)
from spark_cas.options.read_range import ReadLimit, ReadRange, Splitting, TopicPartition
from spark_cas.options.request import Selection

TOPIC = {"kafka.bootstrap.servers": "a:9092,b:9092", "topic": "flights"}
PATH = {"path": "/data/logs/flights"}
IN_FLIGHT = "kafka.max.in.flight.requests.per.connection"
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
    assert parse_read(subscribed).selection == parse_read(TOPIC).selection == Selection(spec, ("flights",))


def test_error_of_several_topics_has_offsets_by_topic():
    one = ConflictError("x", partition=1, actual_offset=3, next_offsets={1: 3})
    other = ConflictError("y", partition=0, actual_offset=4, next_offsets={0: 4})
    assert error_of_topics({"2024": one}).fields == {**one.fields, "next_offsets": {"2024": {1: 3}}}
    error = error_from_text(str(error_of_topics({"2024": one, "b": other})))
    assert error is not None
    assert error.fields == {"next_offsets": {"2024": {1: 3}, "b": {0: 4}}}


def test_every_option_of_a_topic_is_read():
    times = {"opentransactionwaitms": "5000", "transactiontimeoutms": "7000"}
    more = {"idprefix": "team-a", **times, IN_FLIGHT: "3", "kafka.retry.backoff.ms": "5"}
    settings = (("max.in.flight", "3"), ("retry.backoff.ms", "5"))
    spec = parse_write({**TOPIC, **more}).spec
    assert spec == KafkaSpec("a:9092,b:9092", "flights", "team-a", settings, 5000, 7000)
    assert parse_write({"path": "kafka://a:9092,b:9092/flights", **more}).spec == spec
    assert parse_write_stream({**TOPIC, **more}).spec == spec


@pytest.mark.parametrize("parse", [parse_read, parse_write, parse_route])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({**TOPIC, **PATH}, "path and kafka.bootstrap.servers cannot be combined"),
        ({**PATH, "topic": "flights"}, "path and topic cannot be combined"),
        ({"topic": "flights"}, "topic needs the option kafka.bootstrap.servers"),
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


BROKERS = {"kafka.bootstrap.servers": "a:9092,b:9092"}


def test_several_topics_are_named_by_a_list_a_pattern_or_their_partitions():
    several = parse_read({**BROKERS, "subscribe": " flights ,delays,flights,"}).selection
    assert several.topics == ("delays", "flights")
    assert several.spec.of_topic("flights") == KafkaSpec("a:9092,b:9092", "flights")
    assert parse_read({**BROKERS, "subscribepattern": "fl.*"}).selection.pattern == "fl.*"
    assigned = parse_read({**BROKERS, "assign": '{"flights": [1, 0], "delays": [3]}'}).selection
    assert assigned.topics == ("delays", "flights")
    assert assigned.partitions_of("flights", Layout("id", 4, 4)) == (0, 1)
    assert assigned.partitions_of("delays", Layout("id", 4, 4)) == (3,)
    assert "0 to 2" in refused(lambda _: assigned.partitions_of("delays", Layout("id", 3, 3)), {})
    assert "several are named" in refused(lambda _: several.only(), {})


def test_only_one_option_names_the_topics():
    for key, value in (("subscribe", "flights"), ("subscribepattern", "f.*"), ("assign", '{"flights": [0]}')):
        assert "Use one of them" in refused(parse_read, {**TOPIC, key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("subscribe", f"flights,{CANARY} x"),
        ("subscribe", " , "),
        ("subscribepattern", f"({CANARY}"),
        ("subscribepattern", " "),
        ("assign", CANARY),
        ("assign", "{}"),
        ("assign", '{"flights": []}'),
        ("assign", '{"flights": [-1]}'),
        ("assign", '{"flights": [0, 0]}'),
        ("assign", '{"flights": ["0"]}'),
        ("assign", '{"flights": [true]}'),
        ("assign", '{"flights": 0}'),
        ("assign", f'{{"{CANARY} x": [0]}}'),
        ("assign", "[" * 5000),
    ],
)
def test_options_without_topics_are_rejected(key, value):
    refused(parse_read, {**BROKERS, key: value})


def test_a_path_is_one_log_of_which_partitions_can_be_assigned():
    selection = parse_read({**PATH, "assign": '{"flights": [2]}'}).selection
    assert selection == Selection(
        LogSpec("file:///data/logs/flights"), ("flights",), None, (TopicPartition("flights", 2),)
    )
    assert "names other logs than flights" in refused(parse_read, {**PATH, "assign": '{"delays": [2]}'})
    assert "union" in refused(parse_read, {**PATH, "subscribepattern": "f.*"})
    assert "cannot be combined" in refused(parse_read, {**PATH, "subscribe": "flights"})


def test_several_topics_take_the_defaults_of_all_logs_alone(tmp_path):
    given = conf(tmp_path, '[defaults]\nidPrefix = "all"\n[logs.flights]\nidPrefix = "one"')
    for options, prefix in (({"subscribe": "flights"}, "one"), ({"subscribe": "flights,delays"}, "all")):
        spec = parse_read({**BROKERS, **options, **given}).selection.spec
        assert isinstance(spec, KafkaSpec)
        assert spec.prefix == prefix


def test_brokers_without_a_topic_name_the_ways_to_select_topics():
    text = refused(parse_write, BROKERS)
    assert "option('topic', 'flights')" in text
    assert "spark_cas.route" in text


@pytest.mark.parametrize(
    ("options", "without"),
    [
        (BROKERS, True),
        ({"Kafka.Bootstrap.Servers": "a:9092", "job": "load-1", "subscribe": "flights"}, True),
        ({**BROKERS, "Topic": "flights"}, False),
        ({**BROKERS, **PATH}, False),
        (PATH, False),
        ({}, False),
    ],
)
def test_options_without_a_topic_are_recognised(options, without):
    assert names_no_topic(options) == without


def test_each_topic_has_its_own_defaults_and_expected_offsets(tmp_path):
    file = conf(tmp_path, "[logs.a]\nmaxRecordsPerChunk = 7")
    options = {**BROKERS, **file, "job": "load-1", "ExpectedOffsets": '{"b": {"0": 5, "1": null}, "c": {"2": 0}}'}
    parsed = parsed_by_topic(options, ["b", "a"], parse_write)
    assert list(parsed) == ["a", "b", "c"]
    assert [each.spec.topic for each in parsed.values()] == ["a", "b", "c"]
    assert [each.job for each in parsed.values()] == ["load-1"] * 3
    assert [each.limits.max_records == 7 for each in parsed.values()] == [True, False, False]
    expected = [each.expected_offsets for each in parsed.values()]
    named = [ExpectedOffsets("offsets", ((0, 5), (1, None))), ExpectedOffsets("offsets", ((2, 0),))]
    assert expected == [ExpectedOffsets("end"), *named]
    none = parsed_by_topic({**BROKERS, "expectedoffsets": "none"}, ["b", "a"], parse_write)
    assert [each.expected_offsets for each in none.values()] == [ExpectedOffsets("none")] * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"expectedoffsets": '{"0": 5}'}, "the offsets of each topic"),
        ({"expectedoffsets": '{"a": {"0": 5}, "0": 5}'}, "the offsets of each topic"),
        ({"expectedoffsets": '{"a": {"0": 5}, "a": {"1": 5}}'}, "the offsets of each topic"),
        ({"expectedoffsets": '{"a": {"0": 5, "0": 6}}'}, "the offsets of each topic"),
        ({"expectedoffsets": "{}"}, "the offsets of each topic"),
        ({"expectedoffsets": "[" * 5000}, "the offsets of each topic"),
        ({"expectedoffsets": '{"a": {}}'}, "topic a: expected offsets must be"),
        ({"expectedoffsets": '{"a": {"x": 5}}'}, "topic a: expected offsets: each key must be"),
        ({"expectedoffsets": '{"a b": {"0": 5}}'}, "'a b' is no name of a topic"),
        ({"maxrecordsperchunk": "0"}, "topic a: option maxRecordsPerChunk"),
        ({"atomic": "load"}, "topic a: atomic=load"),
    ],
)
def test_options_that_do_not_apply_to_several_topics_are_rejected(options, said):
    assert said in refused(lambda given: parsed_by_topic(given, ["a", "b"], parse_write), {**BROKERS, **options})


def test_default_of_one_log_makes_no_load_of_several_topics_atomic(tmp_path):
    options = {**BROKERS, **conf(tmp_path, '[logs.b]\natomic = "load"')}
    assert "topic b: atomic=load" in refused(lambda given: parsed_by_topic(given, ["a", "b"], parse_write), options)


@pytest.mark.parametrize("value", ["flights,other", "flights.*", "", "a b", f"/{CANARY}"])
def test_one_topic_is_named_and_no_pattern(value):
    text = refused(parse_read, {"kafka.bootstrap.servers": "a:9092", "topic": value})
    assert "one topic" in text


@pytest.mark.parametrize(
    "servers",
    [
        "",
        "a",
        "a:",
        f"{CANARY}",
        f"me:{CANARY}@a:9092",
        "kafka://a:9092",
        "a:9092/x",
        "SASL_SSL://a:9092",
        "a:0",
        "a:65536",
    ],
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
def test_invalid_topic_address_is_rejected(url):
    refused(parse_write, {"path": url})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({**PATH, "kafka.retry.backoff.ms": "5"}, "option kafka.retry.backoff.ms is for topics"),
        ({**PATH, "idprefix": "x"}, "option idPrefix is for topics"),
        ({**PATH, "transactiontimeoutms": "5"}, "option transactionTimeoutMs is for topics"),
        ({**TOPIC, "store.aws_region": "x"}, "option store.aws_region is for logs in an object store"),
        ({**TOPIC, "kafka.acks": "1"}, "kafka.acks may not be set"),
        ({**TOPIC, "kafka.transactional.id": CANARY}, "Use the option job"),
        ({**TOPIC, "kafka.plugin.library.paths": CANARY}, "kafka.plugin.library.paths may not be set"),
        ({**TOPIC, "kafka.retry.backoff.msec": CANARY}, "Did you mean kafka.retry.backoff.ms?"),
        ({**TOPIC, "kafka.bootstrap.server": CANARY}, "Did you mean kafka.bootstrap.servers?"),
        ({**TOPIC, "kafka.retry.backoff.ms": CANARY}, "kafka.retry.backoff.ms must be"),
        ({**TOPIC, "kafka.sasl.jaas.config": JAAS}, "kafka.security.protocol"),
        ({**TOPIC, **SASL, "kafka.sasl.mechanism": CANARY}, "kafka.sasl.mechanism"),
        ({**TOPIC, "idprefix": f"a/{CANARY}"}, "option idPrefix"),
        ({**TOPIC, "opentransactionwaitms": CANARY}, "openTransactionWaitMs must be"),
        *(
            ({**TOPIC, IN_FLIGHT: each}, f"option {IN_FLIGHT} must be a whole number from 1 to 5")
            for each in ("0", "6", "-1", "2.5", "", "five", CANARY)
        ),
        ({**TOPIC, "kafka.max.in.flight": "5"}, f"Use {IN_FLIGHT}"),
    ],
)
def test_invalid_option_is_rejected_by_name(options, said):
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
def test_expected_offsets_need_a_check(tmp_path, expected):
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
        openTransactionWaitMs = 5
        store.aws_region = "eu-north-1"
        kafka.retry.backoff.ms = 1
        [logs.flights]
        kafka.security.protocol = "SSL"
        kafka.retry.backoff.ms = 2
        kafka.enable.metrics.push = false
        [logs."kafka://a:9092,b:9092/flights"]
        openTransactionWaitMs = 6
        kafka.max.in.flight.requests.per.connection = 2
        [logs.other]
        openTransactionWaitMs = 7
        """,
    )
    settings = {"enable.metrics.push": "false", "max.in.flight": "2", "retry.backoff.ms": "3"}
    settings["security.protocol"] = "ssl"
    spec = KafkaSpec("a:9092,b:9092", "flights", "team-a", (*settings.items(),), 6)
    assert parse_read({**TOPIC, **file, "kafka.retry.backoff.ms": "3"}).selection.spec == spec
    assert parse_read({"path": spec.url, **file, "kafka.retry.backoff.ms": "3"}).selection.spec == spec
    assert parse_write({**TOPIC, **file, "kafka.retry.backoff.ms": "3"}).spec == spec
    changed = (*(settings | {"max.in.flight": "4"}).items(),)
    assert parse_write({**TOPIC, **file, "kafka.retry.backoff.ms": "3", IN_FLIGHT: "4"}).spec == replace(
        spec, client_options=changed
    )
    assert parse_read({**PATH, **file}).selection.spec == LogSpec(
        "file:///data/logs/flights", (("aws_region", "eu-north-1"),)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[defaults]\nkafka.bootstrap.servers = "hunter2"', "may not set kafka.bootstrap.servers"),
        ('[defaults]\ntopic = "hunter2"', "may not set topic"),
        ('[logs.other]\nkafka.transactional.id = "hunter2"', "kafka.transactional.id may not be set"),
        ('[logs.flights]\nkafka.retry.backoff.ms = "hunter2"', "kafka.retry.backoff.ms must be"),
    ],
)
def test_the_file_of_defaults_is_checked(tmp_path, text, said):
    assert said in refused(parse_write, {**TOPIC, **conf(tmp_path, text)})


def test_offsets_to_read():
    options = parse_read({**TOPIC, "startingoffsets": '{"flights": {"0": 3}}', "failondataloss": "false"})
    named = ReadLimit("startingOffsets", ((TopicPartition("flights", 0), 3),))
    assert options.range == ReadRange(named, fail_on_data_loss=False)
    assert parse_read(PATH).range == ReadRange()
    assert "earliest, latest, or JSON" in refused(parse_read, {**TOPIC, "endingoffsets": CANARY})
    assert "view=records" in refused(parse_read, {**TOPIC, "view": "offsets", "endingoffsets": "latest"})
    assert "view=records" in refused(parse_read, {**TOPIC, "view": "offsets", "endingtimestamp": "5"})


def test_a_time_wins_over_times_and_these_over_offsets():
    given = {"startingoffsets": "latest", "endingoffsets": "earliest"}
    times = '{"flights": {"0": 7}}'
    by_time = {**given, "startingoffsetsbytimestamp": times, "endingoffsetsbytimestamp": times}
    named = ((TopicPartition("flights", 0), 7),)
    assert parse_read({**TOPIC, **by_time}).range == ReadRange(
        ReadLimit("startingOffsetsByTimestamp", named, timed=True),
        ReadLimit("endingOffsetsByTimestamp", named, timed=True, or_latest=True),
    )
    strategy = {"startingoffsetsbytimestampstrategy": "latest"}
    options = {**TOPIC, **by_time, **strategy, "startingtimestamp": "5", "endingtimestamp": "9"}
    assert parse_read(options).range == ReadRange(
        ReadLimit("startingTimestamp", 5, timed=True, or_latest=True),
        ReadLimit("endingTimestamp", 9, timed=True, or_latest=True),
    )
    for key in ("startingtimestamp", "startingoffsetsbytimestamp", "endingtimestamp"):
        assert CANARY not in refused(parse_read, {**TOPIC, key: CANARY})
    assert "milliseconds since 1970" in refused(parse_read, {**TOPIC, "startingtimestamp": "-1"})


def test_how_a_read_is_split():
    assert parse_read(TOPIC).splitting == Splitting()
    assert parse_read({**TOPIC, "minpartitions": "8", "maxrecordsperpartition": "100"}).splitting == Splitting(8, 100)


def test_route_passes_the_address_of_the_log():
    options = parse_route({**TOPIC, **SASL, "idprefix": "p", "job": "j", "transactiontimeoutms": "5"})
    assert dict(options.reading) == {**TOPIC, **SASL, "idprefix": "p"}
    assert CANARY not in repr(options)


def test_a_table_can_be_created_with_options():
    assert check_read(TOPIC) == ("records", False)
