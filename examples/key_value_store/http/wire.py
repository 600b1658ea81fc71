"""The HTTP format of the store: paths of keys, versions as entity tags, transactions as JSON. Pure functions.

A version is a strong entity tag (RFC 9110, 8.8.3) with decimal digits. ``If-Match: "7"`` expects version 7.
``If-None-Match: *`` expects an absent key (13.1).
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
"""The token of an absent key, in addition to those of `ErrorKind`."""

MOST_BODY_BYTES = 8 * 1024 * 1024
"""The server rejects a larger body. The log limits the size of a record, usually to less."""

_TAG = re.compile(r'"(0|[1-9][0-9]{0,18})"')
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_MOST_PORT = 65535

_WRONG_MATCH = (
    'expected If-Match: "VERSION" with one version in quotes, as in the ETag, or If-None-Match: *, or neither'
)


@dataclass
class RefusedRequestError(Exception):
    """A request that the server rejects before it reaches a node."""

    status: HTTPStatus
    message: str
    headers: Mapping[str, str] | None = None


def bad_request(message: str) -> RefusedRequestError:
    """Return the error for a request that is not valid in this API."""
    return RefusedRequestError(HTTPStatus.BAD_REQUEST, f"{message}. Nothing was written.")


@dataclass(frozen=True, slots=True)
class Transaction:
    """Atomic writes of several keys. None deletes a key."""

    writes: Mapping[bytes, bytes | None]
    expected: Mapping[bytes, Expected]


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return the parts of ``host:port``, an IPv6 host without its brackets; None for any other text."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > _MOST_PORT:
        return None
    return match["host"].strip("[]"), int(match["port"])


def path_of_key(key: bytes) -> str:
    """Return the path of a key.

    It percent-encodes all characters except letters, digits, ``_`` and ``-``. Clients resolve dots, so these are
    encoded.
    """
    return KEYS + quote(key, safe="").replace(".", "%2E").replace("~", "%7E")


def key_of_path(raw_path: bytes) -> bytes:
    """Return the key in a raw path. Raises RefusedRequestError."""
    if not raw_path.startswith(KEYS.encode()):
        raise bad_request(f"expected the path to begin with {KEYS}, not percent-encoded")
    return unquote_to_bytes(raw_path.removeprefix(KEYS.encode()))


def tag_of(version: int) -> str:
    """Return the entity tag of a version."""
    return f'"{version}"'


def version_of_tag(tag: str) -> int | None:
    """Return the version in an entity tag; None if it is not a tag of this store."""
    match = _TAG.fullmatch(tag.strip())
    return int(match[1]) if match else None


def expected_of(if_match: str | None, if_none_match: str | None) -> Expected:
    """Return the version that a write expects, from its headers. Raises RefusedRequestError."""
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
    """Return the transaction in a JSON body. Raises RefusedRequestError."""
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
            raise _bad_transaction("a key occurs twice")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _bad_transaction(f"{type(error).__name__} in the JSON") from None
    return Transaction(writes, expected)


def transaction_json(transaction: Transaction) -> bytes:
    """Return a transaction as JSON for `transaction_of`."""
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
    """Return the reply to a transaction: the new version of each key."""
    return {"versions": [{"key": text_of(key), "version": version} for key, version in versions.items()]}


def versions_of(document: Mapping[str, Any]) -> dict[bytes, int]:
    """Return the versions in the document of `versions_json`. Raises ValueError, KeyError, TypeError."""
    return {_bytes(each["key"]): int(each["version"]) for each in document["versions"]}


def text_of(data: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(data).decode()


def _bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise _bad_transaction("a key or value is not a string")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise _bad_transaction("a key or value is not base64") from None


def _version(version: object) -> int | None:
    if version is None or (isinstance(version, int) and not isinstance(version, bool) and version >= 0):
        return version
    raise _bad_transaction("a version is neither a number nor null")


def _bad_transaction(reason: str) -> RefusedRequestError:
    return bad_request(
        f'expected {{"writes": [{{"key": BASE64, "value": BASE64 or null}}], "expected": [{{"key": BASE64, '
        f'"version": NUMBER or null}}]}}, each key once: {reason}'
    )
