"""Paths, ETags and transactions: parsing returns the written value, and rejects any other text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from key_value_store.http.wire import (
    RefusedRequestError,
    Transaction,
    expected_of,
    host_and_port,
    key_of_path,
    path_of_key,
    tag_of,
    transaction_json,
    transaction_of,
    version_of_tag,
)
from key_value_store.values import ANY

keys = st.binary(max_size=20)
versions = st.integers(0, 2**62)


@given(keys)
def test_a_path_keeps_its_key(key):
    path = path_of_key(key)
    assert key_of_path(path.encode()) == key
    assert "." not in path
    assert path.isprintable()


@given(versions)
def test_a_tag_keeps_its_version(version):
    assert version_of_tag(tag_of(version)) == expected_of(tag_of(version), None) == version


@pytest.mark.parametrize("tag", ["", "7", '"07"', '"-1"', 'W/"7"', '"7" "8"', '"x"', '"' + "9" * 30 + '"', '"٣"'])
def test_other_tags_are_no_version(tag):
    assert version_of_tag(tag) is None
    with pytest.raises(RefusedRequestError):
        expected_of(tag, None)


def test_conditions():
    assert expected_of(None, None) is ANY
    assert expected_of(None, "*") is None


@given(
    st.dictionaries(keys, st.none() | st.binary(max_size=20), max_size=5),
    st.dictionaries(keys, st.none() | versions, max_size=5),
)
def test_a_transaction_is_read_as_it_was_written(writes, expected):
    asked = Transaction(writes, expected)
    assert transaction_of(transaction_json(asked)) == asked


@given(st.binary(max_size=60) | st.sampled_from([b"{}", b'{"writes": 1}', b'{"writes": [1]}', b'{"writes": [{}]}']))
def test_invalid_transaction_is_rejected(body):
    with pytest.raises(RefusedRequestError):
        transaction_of(body)


def test_a_key_twice_is_refused():
    body = b'{"writes": [{"key": "YQ==", "value": null}, {"key": "YQ==", "value": "YQ=="}]}'
    with pytest.raises(RefusedRequestError, match="twice"):
        transaction_of(body)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("localhost:80", ("localhost", 80)),
        ("[::1]:80", ("::1", 80)),
        ("localhost", None),
        ("localhost:70000", None),
        ("a b:80", None),
        ("a:80/b", None),
        ("me@host:80", None),
        ("a:80\r\nX: y", None),
    ],
)
def test_addresses(text, parts):
    assert host_and_port(text) == parts
