"""Replies of a store: the result of a put-if-absent, and errors as transient or permanent.

The text of an error may contain a signed URL, so it is never shown. This module does not retry; see `RetryingStore`.
"""

import re
from enum import Enum

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from spark_cas.core.errors import AccessDeniedError, FormatError, RecordTooLargeError, StorageError


class PutReply(Enum):
    """The response of a store to a put-if-absent request."""

    CREATED = "created"
    ALREADY_EXISTS = "already exists"
    """Ambiguous: another writer won, our own response was lost, or (S3's 409) nothing happened."""
    UNCLEAR = "unclear"
    """Transport error, timeout or 5xx: the store may have applied the put."""


class Existing(Enum):
    """The writer of the object under the name of a put: that of a new object, or as read back.

    Unless the store reports that it created the object, its reply proves nothing: it rejects a retried request
    because of the object that the first attempt created.
    """

    OURS = "the same write id"
    SAME_JOB = "another write of the same job"
    NEWER_LAYOUT = "a write with a newer layout epoch"
    OTHER = "another job"
    ABSENT = "nothing"
    UNREADABLE = "the read failed"


MAX_OBJECT_BYTES = 256 * 1024 * 1024
"""Writers and readers reject a larger object. The completion of 100,000 partitions has about 50 MB."""

_PASSING = re.compile("400 RequestTimeout|408|409|425|429|5(?!01|05)..")
"""HTTP statuses of a store that is busy, down or reconfiguring. All other statuses are permanent rejections."""

_EXPIRED = re.compile("<Code>(ExpiredToken|InvalidToken|TokenRefreshRequired)</Code>")
"""Text in S3's replies with status 400 if temporary credentials have expired."""

_BUSY_IN_REPLY = "Server returned error response:"
"""Text in obstore's errors if a reply with status 200 contains the error that the store is busy or failed."""
_UNDELETED = re.compile(r"DeleteObjects request failed for key .+ \(code: (\w+)\)")
_STATUS_OF_UNDELETED = {"AccessDenied": "403", "ServiceUnavailable": "503"}
"""The HTTP status that a reply to the request for one object has instead of the error code."""

_NO_ANSWER = "HTTP error:"
"""Text in obstore's errors if the reply is missing or incomplete. Otherwise the reply was not understood."""
_NO_SERVER = ("kind: Connect", "://169.254.")
"""Text in obstore's errors if the port is closed or the host or certificate is unknown. A slow connection is a
timeout instead. Without credentials, obstore requests them from the link-local metadata address, which is also listed
here."""

_CHECK = (
    "Check the address, the endpoint and region in the store.* options and that it can be reached from here, and "
    "that credentials are given."
)
_RUN_AGAIN = "See the store's own log, then run the same job again."


def require_size(size: int, place: str) -> None:
    """Raise FormatError for an object that is too large to be part of a log."""
    if size > MAX_OBJECT_BYTES:
        raise FormatError(
            f"{place} has {size} bytes, and an object of a log has at most {MAX_OBJECT_BYTES}, so another program "
            f"wrote it. Nothing of it was read. Restore it from a copy."
        )


def require_readable(size: int, place: str) -> None:
    """Raise RecordTooLargeError for an object that is too large for readers. Call it before the put."""
    if size > MAX_OBJECT_BYTES:
        raise RecordTooLargeError(
            f"{place} has {size} bytes, and readers of a log accept at most {MAX_OBJECT_BYTES}. Nothing of it was "
            f"written. Use shorter job names, fewer partitions or fewer input files."
        )


class NotNowError(StorageError):
    """A transient failure of the store. A retry may succeed."""

    def __init__(self, message: str, why: str = "the store did not answer") -> None:
        super().__init__(message)
        self.why = why


class NoServerError(NotNowError):
    """The address refuses connections. The address is wrong, unless an earlier request succeeded."""


def plain(error: BaseException, doing: str) -> StorageError:
    """Return the StorageError for an error of obstore; NotNowError if it is transient.

    ``doing`` is the operation and its path, for example "reading s3://logs/flights/_log/layout".
    """
    status = _status(error)
    is_denied = isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403")
    if is_denied or _EXPIRED.search(str(error)):
        return AccessDeniedError(
            f"{doing}: the store refused the credentials or their rights, or the credentials have expired. The log "
            f"needs to list, read and create objects below its root, and to delete them where it is trimmed or jobs "
            f"are forgotten; give credentials with store.* options or the environment."
        )
    if isinstance(error, FileNotFoundError) or status == "404":
        return StorageError(
            f"{doing}: the store has no such bucket or container. Create it, or check the address and the "
            f"endpoint and region in the store.* options."
        )
    if _PASSING.fullmatch(status):
        why = f"the store failed (HTTP {status})"
        expired = " Check that the credentials have not expired." if status.startswith("400") else ""
        return NotNowError(f"{doing}: {why}.{expired} {_RUN_AGAIN}", why)
    if status:
        return StorageError(
            f"{doing}: the store refused the request (HTTP {status}). It may not know conditional puts "
            f"(If-None-Match: *), on which the log rests: then use another store, or a newer version of this one."
        )
    if _NO_ANSWER not in str(error):
        return StorageError(f"{doing}: the server at the address is no such store ({type(error).__name__}). {_CHECK}")
    no_server = any(sign in str(error) for sign in _NO_SERVER)
    kind = NoServerError if no_server else NotNowError
    why = f"the store did not answer ({type(error).__name__})"
    return kind(f"{doing}: {why}. {_CHECK}", why)


def _status(error: BaseException) -> str:
    """Return the HTTP status of a reply; an empty string if there is no reply.

    obstore deletes an object of S3 with the request for several. Its reply has status 200, with an error for each.

    S3 sends status 400 when it closes a connection without data, which is transient. A reply to HEAD has no body, so
    its cause is unknown. Both return "400 RequestTimeout".
    """
    text = str(error)
    if _BUSY_IN_REPLY in text:
        return "503"
    undeleted = _UNDELETED.search(text)
    if undeleted:
        return _STATUS_OF_UNDELETED.get(undeleted[1], "400")
    result = re.search(r"status code: (\d{3})", text)
    status = result[1] if result else ""
    timed_out = "<Code>RequestTimeout</Code>" in text or "Error performing HEAD" in text
    return "400 RequestTimeout" if status == "400" and timed_out else status
