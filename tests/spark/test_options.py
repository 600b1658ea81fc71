"""Options: the parsed values and the rejected ones. No error shows a value."""

import itertools
from pathlib import Path

import pytest
from obstore.exceptions import BaseError, UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, S3Store

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.kafka.settings.client_settings import log_ignored
from spark_cas.log.spec import LogSpec
from spark_cas.options.option_values import AWS, AZURE, GOOGLE, OptionValues
from spark_cas.options.parse import (
    as_text,
    check_read,
    parse_read,
    parse_read_stream,
    parse_route,
    parse_write,
    parse_write_stream,
)
from spark_cas.options.table import OPTIONS, Scope
from tools.options_page import MEANINGS, render

PATH = {"path": "/data/logs/flights"}
CANARY = "hunter2"


@pytest.fixture(autouse=True)
def no_conf(monkeypatch):
    monkeypatch.delenv("SPARK_CAS_CONF", raising=False)


def refused(parse, options):
    with pytest.raises(OptionError) as caught:
        parse(options)
    assert CANARY not in str(caught.value)
    assert str(caught.value).startswith("[OPTION] ")
    assert caught.value.__cause__ is None
    return str(caught.value)


def conf(tmp_path, text):
    file = tmp_path / "conditional-log.toml"
    file.write_text(text)
    return {**PATH, "conf": str(file)}


def test_a_write_has_these_defaults():
    options = parse_write(PATH)
    assert options.spec.url == "file:///data/logs/flights"
    assert options.job is None
    assert options.expected_offsets == ExpectedOffsets("end")
    assert (options.partitions, options.new_partitions) == (None, None)
    assert options.limits == ChunkLimits()
    assert (options.routed, options.fenced_retry_wait_ms) == (False, 30_000)


def test_every_option_of_a_write_is_read():
    options = parse_write(
        {
            **PATH,
            "job": "load-1",
            "expectedoffsets": '{"0": 17, "3": null}',
            "partitions": "4",
            "maxrecordsperchunk": "10",
            "maxbytesperchunk": str(64 * 1024 * 1024),
            "maxsecondsperchunk": "0.5",
            "routed": "TRUE",
            "fencedretrywaitms": "1000",
            "store.aws_access_key_id": "env:KEY",
        }
    )
    assert options.job == "load-1"
    assert options.expected_offsets.offsets == ((0, 17), (3, None))
    assert (options.partitions, options.new_partitions) == (4, 4)
    assert options.limits == ChunkLimits(10, 64 * 1024 * 1024, 0.5)
    assert (options.routed, options.fenced_retry_wait_ms) == (True, 1000)
    assert options.spec == LogSpec("file:///data/logs/flights", (("aws_access_key_id", "env:KEY"),))


@pytest.mark.parametrize("name", ["checkExpectedOffsets", "atomic"])
@pytest.mark.parametrize("log", ["flights", "/data/logs/flights"])
@pytest.mark.parametrize("said", list(itertools.product([None, True, False], repeat=3)))
def test_a_write_wins_over_its_log_and_that_over_all_logs(tmp_path, name, log, said):
    everywhere, here, given = said
    tables = {"defaults": everywhere, f'logs."{log}"': here, 'logs."another"': not here}
    lines = [f"[{table}]\n{name} = {str(value).lower()}" for table, value in tables.items() if value is not None]
    options = conf(tmp_path, "\n".join(lines)) | ({} if given is None else {name.lower(): str(given)})
    built_in = name == "checkExpectedOffsets"
    expected = next(value for value in (given, here, everywhere, built_in) if value is not None)
    parsed = parse_write(options)
    assert (parsed.checked if built_in else parsed.atomic) == expected
    if built_in:
        assert parsed.expected_offsets == ExpectedOffsets("end" if expected else "none")


@pytest.mark.parametrize("said", list(itertools.product([None, "key", "partition"], repeat=3)))
def test_compare_is_set_for_a_write_a_log_or_all_logs(tmp_path, said):
    tables = zip(("defaults", "logs.flights"), said, strict=False)
    lines = [f"[{table}]\ncompare = '{value}'" for table, value in tables if value is not None]
    options = conf(tmp_path, "\n".join(lines)) | ({} if said[2] is None else {"compare": said[2]})
    assert parse_write(options).compare == next(each for each in (*reversed(said), "partition") if each is not None)


@pytest.mark.parametrize(
    "parse", [parse_write_stream, lambda given: parse_write({**given, "batchId": "5", "job": "j"})]
)
def test_conditions_of_loads_do_not_apply_to_streams(tmp_path, parse):
    assert "atomic of a stream must be load" in refused(parse, {**PATH, "atomic": "true"})
    for name, value in {"compare": "key", "lockWaitTimeout": "5s", "roundOf": "j", "report": "result.json"}.items():
        assert f"{name} is for loads" in refused(parse, {**PATH, name: value})
    assert parse(conf(tmp_path, "[defaults]\natomic = true\ncompare = 'key'")) is not None


def test_lock_wait_timeout_needs_a_lock():
    wait = {**PATH, "lockWaitTimeout": "5s"}
    for none in ({"compare": "key"}, {"expectedOffsets": "none"}, {"checkExpectedOffsets": "false"}):
        for parse in (parse_write, parse_route):
            assert "this load has no lock" in refused(parse, {**wait, **none})
    assert parse_write(wait).lock_wait_timeout_ms == 5_000
    assert parse_write({**wait, "expectedOffsets": "none", "atomic": "load"}).lock_wait_timeout_ms == 5_000


def test_value_none_is_no_option():
    assert as_text({"path": "/data", "job": None, "partitions": 4}) == {"path": "/data", "partitions": "4"}


def test_batch_needs_the_name_of_its_stream():
    assert "batchId needs option job" in refused(parse_write, {**PATH, "batchId": "5"})
    assert parse_write({**PATH, "batchId": "5", "job": "j"}).batch_id == 5


def test_a_stream_that_cuts_no_load_has_no_limit_that_would():
    assert parse_read_stream({**PATH, "isolation": "load", "minOffsetsPerTrigger": "5"}).whole_loads
    assert not parse_read_stream({**PATH, "maxOffsetsPerTrigger": "5"}).whole_loads
    told = refused(parse_read_stream, {**PATH, "isolation": "load", "maxOffsetsPerTrigger": "5"})
    assert "isolation=load and maxOffsetsPerTrigger" in told


def test_the_options_of_a_read_are_read():
    options = parse_read({**PATH, "view": "Offsets", "includeHeaders": "true"})
    assert (options.view, options.include_headers) == ("offsets", True)
    assert parse_read(PATH).view == "records"


@pytest.mark.parametrize(
    ("parse", "key", "nearest"),
    [
        (parse_write, "expectedofsets", "expectedOffsets"),
        (parse_write, "maxrecordperchunk", "maxRecordsPerChunk"),
        (parse_write, "store.aws_acces_key_id", "store.aws_access_key_id"),
        (parse_read, "includeheader", "includeHeaders"),
        (parse_route, "partition", "partitions"),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest_one(parse, key, nearest):
    text = refused(parse, {**PATH, key: CANARY})
    assert repr(key) in text
    assert f"Did you mean {nearest}?" in text


@pytest.mark.parametrize(("parse", "key"), [(parse_read, "isolation"), (parse_read_stream, "view")])
def test_an_option_of_another_kind_of_read_is_refused(parse, key):
    assert "is one of" in refused(parse, {**PATH, key: CANARY})


OF_WRITES = {
    "job": "load-1",
    "expectedOffsets": '{"0": 5}',
    "partitions": "3",
    "atomic": "load",
    "compare": "key",
    "maxRecordsPerChunk": "7",
}
OF_READS = {
    "startingOffsets": "latest",
    "includeHeaders": "true",
    "failOnDataLoss": "false",
    "minPartitions": "2",
    "maxRecordsPerPartition": "9",
}
OF_STREAMING_READS = {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2", "maxTriggerDelay": "1m"}
BOTH = {**OF_WRITES, **OF_READS, **OF_STREAMING_READS, "groupIdPrefix": "x", "fetchOffset.numRetries": "3"}


@pytest.mark.parametrize(
    ("parse", "own"),
    [
        (parse_read, OF_READS),
        (parse_read_stream, OF_READS | OF_STREAMING_READS),
        (parse_write, OF_WRITES),
        (parse_route, OF_WRITES),
    ],
)
def test_one_dict_serves_reads_route_and_writes(parse, own):
    assert parse({**PATH, **BOTH}) == parse({**PATH, **own})


def test_one_dict_serves_a_stream_and_its_route(tmp_path):
    query = {"checkpointLocation": str(tmp_path), "queryName": "q"}
    of_writes = {"job": "copy", "atomic": "load", "partitions": "3"}
    both = {**PATH, **query, **of_writes, **OF_READS, **OF_STREAMING_READS, "groupIdPrefix": "x"}
    assert parse_read_stream(both) == parse_read_stream({**PATH, **OF_READS, **OF_STREAMING_READS})
    assert parse_route(both) == parse_route({**PATH, **of_writes})
    assert parse_write_stream(both) == parse_write_stream({**PATH, **of_writes})


def test_a_read_that_is_no_stream_reports_limits_of_micro_batches_once(caplog):
    log_ignored.cache_clear()
    for _ in range(2):
        parse_read({**PATH, **OF_STREAMING_READS})
    messages = [each.getMessage() for each in caplog.records]
    assert [name for name in OF_STREAMING_READS if any(name.lower() in each for each in messages)] == [
        *OF_STREAMING_READS
    ]
    assert len(messages) == len(OF_STREAMING_READS)


@pytest.mark.parametrize("parse", [parse_write, parse_write_stream, parse_route])
def test_a_condition_of_a_read_is_refused_in_a_write(parse):
    assert "logId" in refused(parse, {**PATH, "logId": CANARY})


@pytest.mark.parametrize("parse", [parse_read, parse_read_stream, parse_write, parse_write_stream, parse_route])
@pytest.mark.parametrize("name", ["expectedOffset", "expectedOfsets", "startingOffset", "groupIdPrefx", "logIds"])
def test_a_misspelled_option_is_refused_in_each_direction(parse, name):
    assert "there is no option" in refused(parse, {**PATH, name: CANARY})


@pytest.mark.parametrize("name", ["checkpointLocation", "queryName"])
def test_a_load_refuses_options_of_a_query(name):
    assert "there is no option" in refused(parse_write, {**PATH, name: CANARY})


@pytest.mark.parametrize(
    "key", ["partitions", "maxrecordsperchunk", "maxbytesperchunk", "maxsecondsperchunk", "fencedretrywaitms"]
)
@pytest.mark.parametrize("value", ["0", "-1", "", "x" + CANARY, "nan", "1e400", "-0.5", "²"])
def test_numbers_must_be_above_zero(key, value):
    assert "must be a" in refused(parse_write, {**PATH, key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("maxbytesperchunk", str(64 * 1024 * 1024 + 1)),
        ("partitions", "1.5"),
        ("routed", CANARY),
        ("routed", "yes"),
        ("job", ""),
        ("job", "a/b" + CANARY),
        ("job", ".."),
        ("expectedoffsets", CANARY),
        ("expectedoffsets", '{"0": -1}'),
        ("expectedoffsets", '{"-1": 1}'),
        ("expectedoffsets", '{"0": 1.5}'),
        ("expectedoffsets", "[1]"),
        ("path", " "),
        ("path", f"ftp://{CANARY}/log"),
        ("path", "memory://log"),
        ("path", "MEMORY://log"),
        ("path", "/data/logs/" + CANARY + " x"),
    ],
)
def test_malformed_values_are_refused(key, value):
    refused(parse_write, {**PATH, key: value})


def test_missing_path_shows_the_sql_syntax():
    for parse in (parse_read, parse_write):
        assert "WITH (path='/data/logs/flights'" in refused(parse, {})
    assert check_read({}) == ("records", False)


def test_a_relative_path_becomes_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert parse_write({"path": "logs/flights"}).spec.url == (tmp_path / "logs/flights").as_uri()


def test_a_list_of_one_path_is_a_path():
    assert parse_read({"paths": '["/data/logs/flights"]'}).selection == parse_read(PATH).selection
    for several_or_none in ('["/a", "/b"]', "[]", "/a", "1"):
        assert "one log" in refused(parse_read, {"paths": several_or_none})


def test_options_that_spark_adds_are_accepted():
    added = {"location": "file:/x", "owner": "me", "provider": "p", "option.path": "/x", "file:/x/y": "1"}
    assert parse_read({**PATH, **added}) == parse_read(PATH)


def test_explicit_options_win_over_the_log_and_that_over_all_logs(tmp_path):
    given = conf(
        tmp_path,
        """
        [defaults]
        maxRecordsPerChunk = 1_000
        maxSecondsPerChunk = 1
        fencedRetryWaitMs = 7
        partitions = 3
        store.aws_region = "eu-north-1"
        [logs.flights]
        maxSecondsPerChunk = 2
        partitions = 4
        [logs."/data/logs/flights"]
        partitions = 5
        includeHeaders = true
        [logs.other]
        partitions = 6
        """,
    )
    options = parse_write({**given, "fencedRetryWaitMs": "8"})
    assert options.limits == ChunkLimits(max_records=1000, max_seconds=2.0)
    assert options.fenced_retry_wait_ms == 8
    # A default sets the partition count of a new log, and asserts nothing about an existing log.
    assert (options.partitions, options.new_partitions) == (None, 5)
    assert options.spec == LogSpec("file:///data/logs/flights", (("aws_region", "eu-north-1"),))
    assert parse_read(given).include_headers
    assert parse_route(given).new_partitions == 5


def test_the_environment_names_the_file_unless_the_option_does(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_CAS_CONF", conf(tmp_path, "[defaults]\nfencedRetryWaitMs = 7")["conf"])
    assert parse_write(PATH).fenced_retry_wait_ms == 7
    other = tmp_path / "other.toml"
    other.write_text("[defaults]\nfencedRetryWaitMs = 9")
    assert parse_write({**PATH, "conf": str(other)}).fenced_retry_wait_ms == 9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[defaults]\nmaxRecordPerChunk = 1", "Did you mean maxRecordsPerChunk?"),
        ("[logs.other]\nmaxRecordPerChunk = 1", "Did you mean maxRecordsPerChunk?"),
        ('[defaults]\njob = "x"', "may not set job"),
        ('[defaults]\nstore.plugin = "hunter2"', "store.plugin"),
        ("[default]\nfencedRetryWaitMs = 1", "only"),
        ("fencedRetryWaitMs = 1", "only"),
        ("defaults = 1", "only"),
        ("logs.flights = 1", "only"),
        ("[defaults]\nfencedRetryWaitMs = 0", "fencedRetryWaitMs must be"),
        ("[defaults]\npartitions = 'hunter2'", "partitions must be"),
        ("= hunter2", "or is not TOML"),
    ],
)
def test_the_file_of_defaults_is_checked(tmp_path, text, said):
    assert said in refused(parse_write, conf(tmp_path, text))


def test_a_file_of_defaults_that_is_not_there_is_refused():
    for file in (f"/no/{CANARY}", f"~{CANARY}/defaults.toml"):
        assert "cannot be read" in refused(parse_write, {**PATH, "conf": file})


@pytest.mark.parametrize(
    "name", ["conditional_put", "copy_if_not_exists", "use_azure_cli", "bucket", "allow_invalid_certificates", ""]
)
def test_unsafe_settings_are_rejected(name):
    assert "may not be set" in refused(parse_write, {**PATH, f"store.{name}": CANARY})


def known_to(store, name, **where):
    try:
        store(**where, config={name: "true"})
    except UnknownConfigurationKeyError:
        return False
    except BaseError:  # a known name with an invalid value
        return True
    return True


def test_client_supports_every_allowed_setting():
    unknown = [name for name in AWS if not known_to(S3Store, name, bucket="b")]
    unknown += [name for name in AZURE if not known_to(AzureStore, name, container_name="c")]
    unknown += [name for name in GOOGLE if not known_to(GCSStore, name, bucket="b")]
    assert unknown == []
    assert not known_to(S3Store, "regoin", bucket="b")


def test_secrets_are_not_shown():
    secret = {**PATH, "store.aws_secret_access_key": CANARY}
    assert CANARY not in repr(parse_write(secret)) + repr(parse_read(secret))


def test_the_patience_for_a_store_is_a_setting_of_it():
    spec = parse_write({**PATH, "store.retry_timeout": "90s"}).spec
    assert isinstance(spec, LogSpec)
    assert (spec.patience_ms, spec.store_options) == (90_000, ())
    assert "store.retry_timeout" in refused(parse_write, {**PATH, "store.retry_timeout": CANARY})


def test_route_accepts_the_options_of_a_write():
    options = parse_route({**PATH, "job": "j", "partitions": "4", "routed": "true", "store.region": "x"})
    assert (options.job, options.partitions) == ("j", 4)
    assert options.reading == (("path", PATH["path"]), ("store.region", "x"))
    assert "neither path nor kafka.bootstrap.servers" in refused(parse_route, {"job": "j"})


def test_route_rejects_a_malformed_option_of_the_write():
    assert "maxRecordsPerChunk" in refused(parse_route, {**PATH, "maxRecordsPerChunk": CANARY})


def test_option_has_the_type_that_the_caller_requests():
    values = OptionValues({**PATH, "maxRecordsPerChunk": "7"}, Scope.WRITE)
    assert values.get("maxRecordsPerChunk", int) == 7
    with pytest.raises(TypeError, match="maxRecordsPerChunk"):
        values.get("maxRecordsPerChunk", str)


def test_the_page_of_options_is_not_stale():
    page = Path(__file__).parents[2] / "docs" / "options.md"
    assert page.read_text() == render(), "run: python -m tools.options_page > docs/options.md"
    assert {each.name for each in OPTIONS if not each.internal} == MEANINGS.keys()
