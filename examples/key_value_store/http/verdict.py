"""What one node's reply means for who asked: done, not done, or nobody knows. Pure."""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from key_value_store.http.exchange import Reply
from key_value_store.http.wire import ABSENT, READ_HEADER, host_and_port, version_of_tag
from spark_cas.core.errors import (
    StorageError,
    UnknownOutcomeError,
    VersionMismatchError,
    error_from_text,
)

_DONE = (HTTPStatus.OK, HTTPStatus.CREATED)
_MAY_PASS = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.REQUEST_TIMEOUT)


@dataclass(frozen=True, slots=True)
class Done:
    """It was done."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class AskElsewhere:
    """Nothing was done; another node leads."""

    address: str


@dataclass(frozen=True, slots=True)
class NotDone:
    """Nothing was done, and the same may be asked again."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was done, and the same asked again is refused again."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Unclear:
    """It may have been done, or may yet be."""

    why: str


Verdict = Done | AskElsewhere | NotDone | Refused | Unclear


def document_in(reply: Reply) -> dict[str, Any]:
    """The JSON object of a reply. Raises ValueError."""
    found = json.loads(reply.body)
    if not isinstance(found, dict):
        msg = "no JSON object"
        raise ValueError(msg)  # noqa: TRY004 - as for what is no JSON at all
    return found


def verdict_of(reply: Reply, *, reads: bool = False) -> Verdict:
    """What a reply to a write, or to a read, means. One that no node of this store gives is unclear."""
    if reply.status in _DONE:
        done = _has_value(reply) if reads else _tells_what_was_written(reply)
        return Done(reply) if done else Unclear(f"HTTP status {reply.status}, not as a node of the store gives it")
    if reply.status == HTTPStatus.TEMPORARY_REDIRECT:
        address = urlsplit(reply.headers.get("Location", "")).netloc
        return AskElsewhere(address) if host_and_port(address) else NotDone("it sent to no node")
    try:
        document = document_in(reply)
        token, message = str(document["token"]), str(document["message"])
    except (ValueError, KeyError):
        return Unclear(f"HTTP status {reply.status}")
    if token == ABSENT:
        return Done(reply)
    return NotDone(message) if reply.status in _MAY_PASS else _told(reply.status, token, message, document)


def _has_value(reply: Reply) -> bool:
    return READ_HEADER in reply.headers and version_of_tag(reply.headers.get("ETag", "")) is not None


def _tells_what_was_written(reply: Reply) -> bool:
    try:
        found = document_in(reply)
    except ValueError:
        return False
    return bool({"version", "offset", "versions"} & found.keys())


def _told(status: int, token: str, message: str, document: dict[str, Any]) -> Verdict:
    if token == VersionMismatchError.kind:
        return Refused(VersionMismatchError(message, actual=document.get("version")))
    error = error_from_text(f"[{token}] {message}")
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Refused(error or ValueError(message))
    if error is None or isinstance(error, UnknownOutcomeError):
        return Unclear(message)
    return Refused(error)


def nobody_did(timeout: float, last: str) -> StorageError:
    """The error for when no node could."""
    return StorageError(
        f"no node could do it within {timeout:g} s: {last or 'none was asked'}. Nothing was written. See that the "
        f"nodes run, and try again."
    )


def nobody_knows(why: str) -> UnknownOutcomeError:
    """The error for when a write may have been done."""
    return UnknownOutcomeError(f"it is not known whether the write was done: {why}. Read the key to find out.")
