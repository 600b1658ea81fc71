"""Determine the meaning of a node's reply: done, not done, or unclear. Pure functions."""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from key_value_store.errors import VersionMismatchError
from key_value_store.http.exchange import Reply
from key_value_store.http.wire import ABSENT, READ_HEADER, host_and_port, version_of_tag
from spark_cas.core.errors import ERRORS_BY_KIND, ErrorKind, StorageError, UnknownOutcomeError

_DONE = (HTTPStatus.OK, HTTPStatus.CREATED)
_MAY_PASS = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.REQUEST_TIMEOUT)


@dataclass(frozen=True, slots=True)
class Done:
    """The node executed the request."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Redirected:
    """The node did nothing; another node leads."""

    address: str


@dataclass(frozen=True, slots=True)
class NotDone:
    """The node did nothing, and the client may retry."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The node did nothing, and would reject a retry too."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Unclear:
    """The node may have executed the request, or may still execute it."""

    reason: str


Verdict = Done | Redirected | NotDone | Refused | Unclear


def document_in(reply: Reply) -> dict[str, Any]:
    """Return the JSON object in a reply. Raises ValueError."""
    document = json.loads(reply.body)
    if not isinstance(document, dict):
        msg = "expected a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - the same error as for invalid JSON
    return document


def verdict_of(reply: Reply, *, reads: bool = False) -> Verdict:
    """Return the meaning of a reply to a write or read. A reply that no node sends is `Unclear`."""
    if reply.status in _DONE:
        done = _has_value(reply) if reads else _has_write_result(reply)
        return Done(reply) if done else Unclear(f"HTTP status {reply.status} without the fields of a node's reply")
    if reply.status == HTTPStatus.TEMPORARY_REDIRECT:
        address = urlsplit(reply.headers.get("Location", "")).netloc
        return Redirected(address) if host_and_port(address) else NotDone("the redirect has no valid address")
    try:
        document = document_in(reply)
        token, message = str(document["token"]), str(document["message"])
    except (ValueError, KeyError):
        return Unclear(f"HTTP status {reply.status}")
    if token == ABSENT:
        return Done(reply)
    return NotDone(message) if reply.status in _MAY_PASS else _error_verdict(reply.status, token, message, document)


def _has_value(reply: Reply) -> bool:
    return READ_HEADER in reply.headers and version_of_tag(reply.headers.get("ETag", "")) is not None


def _has_write_result(reply: Reply) -> bool:
    try:
        document = document_in(reply)
    except ValueError:
        return False
    return bool({"version", "offset", "versions"} & document.keys())


def _error_verdict(status: int, token: str, message: str, document: dict[str, Any]) -> Verdict:
    if token == VersionMismatchError.kind:
        return Refused(VersionMismatchError(message, actual=document.get("version")))
    error = ERRORS_BY_KIND[ErrorKind(token)](message) if token in set(ErrorKind) else None
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Refused(error or ValueError(message))
    if error is None or isinstance(error, UnknownOutcomeError):
        return Unclear(message)
    return Refused(error)


def no_node_error(timeout: float, last: str) -> StorageError:
    """Return the error if no node could execute the request."""
    return StorageError(
        f"no node could do it within {timeout:g} s: {last or 'no node was tried'}. Nothing was written. Check that "
        f"the nodes run, then retry."
    )


def unknown_outcome_error(reason: str) -> UnknownOutcomeError:
    """Return the error if a node may have executed a write."""
    return UnknownOutcomeError(f"the outcome of the write is unknown: {reason}. Read the key to check.")
