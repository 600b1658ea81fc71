"""JSON documents of the log, each with a format version and a checksum of its content."""

import json
from typing import Any

import xxhash

from spark_cas.core.errors import FormatError

FORMAT_VERSION = 1


def encode(value: dict[str, Any]) -> bytes:
    """Return a value as a JSON document. Equal values have equal bytes."""
    text = _canonical(value)
    return _canonical({"format": FORMAT_VERSION, "checksum": _checksum(text), "value": value}).encode()


def decode(data: bytes | memoryview, subject: str) -> dict[str, Any]:
    """Return the value of a document. Raise FormatError if it is corrupt, or if a newer version wrote it."""
    try:
        document = json.loads(bytes(data))
        version, checksum, value = document["format"], document["checksum"], document["value"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(
            f"{subject} is not in the format of spark_cas. Check that this directory is a log."
        ) from None
    if version != FORMAT_VERSION:
        raise FormatError(
            f"{subject} has format version {version}, and this spark_cas reads version {FORMAT_VERSION}. "
            f"Use the version of spark_cas that wrote it, or a newer one."
        )
    if not isinstance(value, dict) or checksum != _checksum(_canonical(value)):
        raise FormatError(f"{subject} is damaged: its checksum does not fit its content. Restore it from a copy.")
    return value


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _checksum(text: str) -> str:
    return xxhash.xxh3_64_hexdigest(text.encode())
