"""What client and server agree on: paths of keys, versions as entity tags, transactions as JSON. Pure.

A version is a strong entity tag (RFC 9110, 8.8.3) of decimal digits. ``If-Match: "7"`` expects version 7,
``If-None-Match: *`` an absent key (13.1).
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from key_value_store.values import ANY, Expected

KEYS = "/keys/"
TRANSACTIONS = "/transactions"
STATUS = "/status"
HEALTH = "/health"

READ_HEADER = "Kv-Read"
LINEARIZABLE = "linearizable"
STALE = "stale"

ABSENT = "ABSENT"
"""The token of a key that is not there, beside those of `ErrorKind`."""

MOST_BODY_BYTES = 8 * 1024 * 1024
"""A larger body is refused. What a record may hold is the log's own, and mostly smaller."""

_TAG = re.compile(r'"(0|[1-9][0-9]{0,18})"')
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_MOST_PORT = 65535

_WRONG_MATCH = (
    'expected If-Match: "VERSION", one version in quotes as the ETag has it, or If-None-Match: *, or neither'
)


@dataclass
class RefusedRequestError(Exception):
    """A request that no node is asked about: what HTTP itself refuses."""

    status: HTTPStatus
    message: str


def bad_request(message: str) -> RefusedRequestError:
    """The error for what is no request of this API."""
    return RefusedRequestError(HTTPStatus.BAD_REQUEST, f"{message}. Nothing was written.")


@dataclass(frozen=True, slots=True)
class Transaction:
    """Writes of several keys in one step; None deletes a key."""

    writes: Mapping[bytes, bytes | None]
    expected: Mapping[bytes, Expected]


def host_and_port(address: str) -> tuple[str, int] | None:
    """The parts of ``host:port``, an IPv6 host without its brackets; None for any other text."""
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > _MOST_PORT:
        return None
    return found["host"].strip("[]"), int(found["port"])


def path_of_key(key: bytes) -> str:
    """The path of a key, all but letters, digits, ``_`` and ``-`` percent-encoded: no dot that a client resolves."""
    return KEYS + quote(key, safe="").replace(".", "%2E").replace("~", "%7E")


def key_of_path(raw_path: bytes) -> bytes:
    """The key of a path as it was sent. Raises RefusedRequestError."""
    if not raw_path.startswith(KEYS.encode()):
        raise bad_request(f"expected the path to begin with {KEYS} as it is")
    return unquote_to_bytes(raw_path.removeprefix(KEYS.encode()))


def tag_of(version: int) -> str:
    """The entity tag of a version."""
    return f'"{version}"'


def version_of_tag(tag: str) -> int | None:
    """The version of an entity tag; None of one that this store never gave."""
    found = _TAG.fullmatch(tag.strip())
    return int(found[1]) if found else None


def expected_of(if_match: str | None, if_none_match: str | None) -> Expected:
    """The version that a write expects, by its headers. Raises RefusedRequestError."""
    if if_match is None:
        if if_none_match is None:
            return ANY
        if if_none_match.strip() == "*":
            return None
    elif if_none_match is None:
        version = version_of_tag(if_match)
        if version is not None:
            return version
    raise bad_request(_WRONG_MATCH)


def transaction_of(body: bytes) -> Transaction:
    """A transaction from its JSON. Raises RefusedRequestError."""
    try:
        document = json.loads(body)
        writes = {
            _bytes(each["key"]): None if each["value"] is None else _bytes(each["value"])
            for each in document["writes"]
        }
        expected: dict[bytes, Expected] = {
            _bytes(each["key"]): _version(each["version"]) for each in document.get("expected", [])
        }
        if len(writes) < len(document["writes"]) or len(expected) < len(document.get("expected", [])):
            raise _wrong("a key is there twice")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _wrong(f"{type(error).__name__} while it was read") from None
    return Transaction(writes, expected)


def transaction_json(transaction: Transaction) -> bytes:
    """A transaction as JSON, as `transaction_of` takes it."""
    return json.dumps(
        {
            "writes": [
                {"key": text_of(key), "value": None if value is None else text_of(value)}
                for key, value in transaction.writes.items()
            ],
            "expected": [
                {"key": text_of(key), "version": version}
                for key, version in transaction.expected.items()
                if version is not ANY
            ],
        }
    ).encode()


def versions_json(versions: Mapping[bytes, int]) -> dict[str, Any]:
    """The answer to a transaction: of each key its new version."""
    return {"versions": [{"key": text_of(key), "version": version} for key, version in versions.items()]}


def versions_of(document: Mapping[str, Any]) -> dict[bytes, int]:
    """What `versions_json` made. Raises ValueError, KeyError, TypeError."""
    return {_bytes(each["key"]): int(each["version"]) for each in document["versions"]}


def text_of(data: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(data).decode()


def _bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise _wrong("a key or value is no text")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise _wrong("a key or value is no base64") from None


def _version(found: object) -> int | None:
    if found is None or (isinstance(found, int) and not isinstance(found, bool) and found >= 0):
        return found
    raise _wrong("a version is a number, or null for a key that has to be absent")


def _wrong(what: str) -> RefusedRequestError:
    return bad_request(
        f'expected {{"writes": [{{"key": BASE64, "value": BASE64 or null}}], "expected": [{{"key": BASE64, '
        f'"version": NUMBER or null}}]}}, each key once: {what}'
    )
