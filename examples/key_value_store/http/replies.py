"""Convert errors of a node to HTTP replies. One table maps an error to a status."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse, Response

from key_value_store.errors import MayBeStaleError, NotLeaderError, VersionMismatchError
from key_value_store.http.wire import RefusedRequestError, tag_of
from spark_cas.core.errors import (
    ConditionalLogError,
    ConflictError,
    FencedError,
    InputError,
    RecordTooLargeError,
    StorageError,
    UnknownOutcomeError,
)

RETRY_SECONDS = 1

INTERNAL = "INTERNAL"

_STATUS: tuple[tuple[type[ConditionalLogError], HTTPStatus], ...] = (
    (VersionMismatchError, HTTPStatus.PRECONDITION_FAILED),
    (UnknownOutcomeError, HTTPStatus.GATEWAY_TIMEOUT),
    (RecordTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (InputError, HTTPStatus.BAD_REQUEST),
    # Transient errors; nothing was written:
    (NotLeaderError, HTTPStatus.SERVICE_UNAVAILABLE),
    (MayBeStaleError, HTTPStatus.SERVICE_UNAVAILABLE),
    (ConflictError, HTTPStatus.SERVICE_UNAVAILABLE),
    (FencedError, HTTPStatus.SERVICE_UNAVAILABLE),
    (StorageError, HTTPStatus.SERVICE_UNAVAILABLE),
    # Permanent errors, for example a changed layout or trimmed records:
    (ConditionalLogError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


def error_reply(
    status: HTTPStatus,
    token: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    **more: int | None,
) -> JSONResponse:
    """Return an error as JSON: a stable token, and a message with the cause and the fix."""
    all_headers = dict(headers or {})
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        all_headers["Retry-After"] = str(RETRY_SECONDS)
    return JSONResponse({"token": token, "message": message, **more}, status, all_headers)


def reply_of(error: Exception) -> Response:
    """Return the reply for an error."""
    if isinstance(error, RefusedRequestError):
        return error_reply(error.status, error.status.name, error.message, error.headers)
    if isinstance(error, VersionMismatchError):
        tag = {} if error.actual is None else {"ETag": tag_of(error.actual)}
        return error_reply(HTTPStatus.PRECONDITION_FAILED, error.kind, error.message, tag, version=error.actual)
    if isinstance(error, ConditionalLogError):
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        return error_reply(status, error.kind, error.message)
    return error_reply(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        INTERNAL,
        "the node has a defect; see its output for details. The outcome of a write is unknown. Read the key to "
        "check.",
    )
