"""What a store's error says: what passes and what does not, in plain words, without its text, which may be signed.

Nothing here waits: `spark_cas.log.objects.patient` asks again.
"""

import re

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from spark_cas.core.errors import StorageError

_REQUEST_REFUSED = ("400", "405", "411", "413", "501", "505")
"""Answers that say that the request itself is refused: nothing was done, and asking again is no use."""

_NOBODY_THERE = ("kind: Connect", "://169.254.")
"""Signs of a port that is closed and a host or certificate that is unknown (what only takes too long is a Timeout);
and of nobody who gives this machine credentials, which are asked for there when none are given."""

_RUN_AGAIN = "See the store's own log, then run the same job again."


class NotNowError(StorageError):
    """What the store did not do now, it may do when it is asked again."""

    def __init__(self, doing: str, why: str, remedy: str) -> None:
        super().__init__(f"{doing}: {why}. {remedy}")
        self.why = why


class NobodyThereError(NotNowError):
    """Nobody takes connections at the address: it is wrong, unless somebody was met there before."""


def plain(error: BaseException, doing: str) -> StorageError:
    """What to raise for an error of obstore; NotNowError where it passes.

    ``doing`` names what was asked: "reading s3://logs/flights/_log/layout".
    """
    status = _status(error)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
        return StorageError(
            f"{doing}: the store refused the credentials or their rights. The log needs to list, read and create "
            f"objects below its root; give credentials with store.* options or the environment."
        )
    if isinstance(error, FileNotFoundError) or status == "404":
        return StorageError(
            f"{doing}: the store has no such bucket or container. Create it, or check the address and the "
            f"endpoint and region in the store.* options."
        )
    if status == "400" and _is_timeout(str(error)):
        return NotNowError(doing, "the store gave the request up (HTTP 400 RequestTimeout)", _RUN_AGAIN)
    if status in _REQUEST_REFUSED:
        return StorageError(
            f"{doing}: the store refused the request (HTTP {status}). It may not know conditional puts "
            f"(If-None-Match: *), on which the log rests: then use another store, or a newer version of this one."
        )
    if status:
        return NotNowError(doing, f"the store failed (HTTP {status})", _RUN_AGAIN)
    nobody = any(sign in str(error) for sign in _NOBODY_THERE)
    kind = NobodyThereError if nobody else NotNowError
    return kind(
        doing,
        f"the store did not answer ({type(error).__name__})",
        "Check the address, the endpoint in the store.* options and that it can be reached from here, and that "
        "credentials are given.",
    )


def _status(error: BaseException) -> str:
    """The HTTP status that a store answered with, empty when it did not answer."""
    said = re.search(r"status code: (\d{3})", str(error))
    return said[1] if said else ""


def _is_timeout(text: str) -> bool:
    """Whether a 400 is the one with which S3 gives up a connection that stood still, and not a refusal.

    The answer to a HEAD has no body, so it does not say.
    """
    return "<Code>RequestTimeout</Code>" in text or "Error performing HEAD" in text
