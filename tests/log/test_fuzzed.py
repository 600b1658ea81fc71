"""Names, paths, addresses and options of any text: a safe value, or an error that does not show the text."""

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cas.core.check_name import check_name
from spark_cas.core.errors import ConditionalLogError, OptionError
from spark_cas.log.objects import paths
from spark_cas.log.objects.local import inside
from spark_cas.log.open import parse_address
from spark_cas.log.spec import LogSpec
from spark_cas.options.parse import parse_read, parse_read_stream, parse_route, parse_write, parse_write_stream
from spark_cas.options.table import OPTIONS
from tools.kafka_connector import SINK, SOURCE

EFFORT = pytest.mark.parametrize(
    "examples", [100, pytest.param(10_000, marks=[pytest.mark.full, pytest.mark.timeout(900)])]
)
ROOT = Path("/srv/logs/flights")
CANARY = "canary"
PARTS = st.sampled_from(["..", ".", "/", "\\", "%2e%2e", "%2F", "\0", "\n", "~", "a", "log", ":", "//", "é", "$(x)"])
ODD = st.lists(PARTS | st.text(max_size=3), max_size=6).map("".join)
NUMBERS = st.integers(0, 2**63).map(str) | st.sampled_from(["-1", "1e9", "NaN", "Infinity", "0x1", "٣", "9" * 5000])
JSON = st.sampled_from(["{", "[", "{}", "[[]]", '{"a": 1}', '{"t": {"0": -2}}', "[" * 9999, '{"0": 1e400}', "null"])
VALUES = (ODD | NUMBERS | JSON | st.sampled_from(["true", "earliest", "end", "10s", "env:X", "file:/x"])).map(str)


def check(property_of, examples, *strategies):
    settings(max_examples=examples)(given(*strategies)(property_of))()


def attempt(call, *arguments):
    """Return the result, or None for an error of spark_cas, which must not show the arguments."""
    try:
        return call(*arguments)
    except ConditionalLogError as error:
        text = str(error)
    assert CANARY not in text
    return None


@EFFORT
def test_name_is_one_component_of_a_path_or_is_rejected(examples):
    def name_is_safe(text):
        name = attempt(check_name, text, "the job name")
        if name is None:
            return
        assert name == text
        assert PurePosixPath(name).parts == (name,)
        assert name not in (".", "..")

    check(name_is_safe, examples, ODD | st.tuples(ODD, st.just(CANARY)).map("".join))


@EFFORT
def test_path_of_the_log_is_below_its_root(examples):
    def stays_inside(job, other, number):
        for path_of in (
            lambda: paths.entry("plan", job),
            lambda: paths.entry("completion", job),
            lambda: paths.job_hint(job, number),
            lambda: paths.closed(job, "a", number),
            lambda: paths.entry("outcome", f"{job}/{other}"),
            lambda: paths.entry("cancelled", job),
            lambda: paths.entry("input", f"{job}/{other}"),
        ):
            try:
                target = inside(ROOT, path_of())
            except OptionError:
                continue
            assert target.resolve().is_relative_to(ROOT)
        try:
            target = inside(ROOT, job)
        except ValueError:
            return
        assert "\0" in job or target.resolve().is_relative_to(ROOT)

    check(stays_inside, examples, ODD, ODD, st.integers(0, 10**6))


@EFFORT
def test_address_is_a_log_with_one_url_or_is_rejected(examples):
    schemes = st.sampled_from(
        ["", "/", "file:", "file:///", "s3://", "az://", "gs://", "memory:///", "kafka://", "x:"]
    )

    def is_understood(scheme, text):
        spec = attempt(parse_address, scheme + text)
        if isinstance(spec, LogSpec):
            assert LogSpec.parse(spec.url) == spec

    check(is_understood, examples, schemes, ODD | st.tuples(ODD, st.just(f"{CANARY}@h/t")).map("".join))


# Deprecated values, and patterns that a later version of Python may read in another way.
@pytest.mark.filterwarnings("ignore::FutureWarning")
@EFFORT
@pytest.mark.parametrize("parse", [parse_read, parse_read_stream, parse_write, parse_write_stream, parse_route])
def test_options_are_parsed_or_rejected_without_their_values(examples, parse):
    own = [each.name for each in OPTIONS]
    kafka = ["kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "kafka.security.protocol", "kafka.acks", "kafka.x"]
    store = ["store.azure_storage_account_key", "store.aws_region", "store.allow_http", "store.x"]
    spark = [each.name for each in (*SOURCE, *SINK)]
    names = st.sampled_from([*own, *spark, *kafka, *store]) | ODD
    values = VALUES | VALUES.map(f"{CANARY}{{}}".format)
    addresses = st.sampled_from(
        [{}, {"path": "/log"}, {"path": "s3://b/l"}, {"kafka.bootstrap.servers": "h:1", "topic": "t"}]
    )

    def is_parsed(address, options):
        attempt(parse, address | options)

    check(is_parsed, examples, addresses, st.dictionaries(names, values, max_size=4))
