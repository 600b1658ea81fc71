from pathlib import Path

import pytest

from spark_cas.core.errors import OptionError
from spark_cas.log.spec import LogSpec


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("/data/logs/flights", "file:///data/logs/flights"),
        ("/data/my logs/flights/", "file:///data/my%20logs/flights"),
        ("file:/data/logs/flights", "file:///data/logs/flights"),
        ("file:///data/my%20logs/flights", "file:///data/my%20logs/flights"),
        ("s3://bucket/logs/flights/", "s3://bucket/logs/flights"),
        ("memory:///flights", "memory:///flights"),
    ],
)
def test_an_address_has_one_url_which_is_an_address_of_the_same(address, url):
    spec = LogSpec.parse(address)
    assert spec.url == url
    assert LogSpec.parse(spec.url) == spec
    assert spec.topic == "flights"


def test_relative_path_is_resolved_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert LogSpec.parse("logs/flights").url == (tmp_path / "logs/flights").as_uri()
    assert Path("logs").exists() is False


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/",
        "/.",
        "~\0",
        "file:///logs%00",
        "file:///",
        "file:///.",
        "http://host/logs",
        "ftp://host/logs",
        "s3://id:canary@bucket/flights",
        "az://container/flights?sig=canary",
    ],
)
def test_invalid_address_of_a_log_is_rejected(address):
    with pytest.raises(OptionError) as refused:
        LogSpec.parse(address)
    assert "canary" not in str(refused.value)


def test_settings_of_the_store_are_never_shown():
    spec = LogSpec.parse("s3://bucket/flights", {"aws_secret_access_key": "canary"})
    assert "canary" not in repr(spec)
    assert "canary" not in str(spec)


@pytest.mark.parametrize(
    ("given", "patience_ms"), [("1500ms", 1500), ("90s", 90_000), ("5 min", 300_000), ("1h", 3_600_000)]
)
def test_patience_is_named_as_the_client_of_the_store_names_it(given, patience_ms):
    spec = LogSpec.parse("s3://bucket/flights", {"retry_timeout": given, "region": "eu-north-1"})
    assert spec.patience_ms == patience_ms
    assert spec.store_options == (("region", "eu-north-1"),)
    assert LogSpec.parse("s3://bucket/flights").patience_ms == 120_000


@pytest.mark.parametrize("given", ["", "0s", "-1s", "90", "canary", "1.5s"])
def test_patience_without_a_unit_or_a_length_is_refused(given):
    with pytest.raises(
        OptionError, match=r"store\.retry_timeout must be a time such as 500ms, 90s or 5min"
    ) as refused:
        LogSpec.parse("/data/flights", {"retry_timeout": given})
    assert "canary" not in str(refused.value)


def test_errors_name_places_as_people_write_them():
    assert LogSpec.parse("/data/a b/flights").at() == "/data/a b/flights"
    assert LogSpec.parse("s3://bucket/flights").at("_log/x") == "s3://bucket/flights/_log/x"
