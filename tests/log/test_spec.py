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


def test_a_relative_path_is_taken_from_where_the_user_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert LogSpec.parse("logs/flights").url == (tmp_path / "logs/flights").as_uri()
    assert Path("logs").exists() is False


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/",
        "file:///",
        "http://host/logs",
        "ftp://host/logs",
        "s3://id:canary@bucket/flights",
        "az://container/flights?sig=canary",
    ],
)
def test_what_is_no_address_of_a_log_is_refused(address):
    with pytest.raises(OptionError) as refused:
        LogSpec.parse(address)
    assert "canary" not in str(refused.value)


def test_settings_of_the_store_are_never_shown():
    spec = LogSpec.parse("s3://bucket/flights", {"aws_secret_access_key": "canary"})
    assert "canary" not in repr(spec)
    assert "canary" not in str(spec)
