"""What a store's error says: what passes and what does not, in plain words, without its text, which may be signed.

Nothing here waits: `spark_cas.log.objects.retry` asks again.
"""

import re

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from spark_cas.core.errors import StorageError

_PASSING = re.compile("400 RequestTimeout|408|409|425|429|5(?!01|05)..")
"""Answers of a store that is busy, down or changing; any other says that the request itself is refused."""

_NO_ANSWER = "HTTP error:"
"""In obstore's words, none or half of one came; else it could make nothing of what came."""
_NOBODY_THERE = ("kind: Connect", "://169.254.")
"""Signs of a port that is closed and a host or certificate that is unknown (what only takes too long is a Timeout);
and of nobody who gives this machine credentials, which are asked for there when none are given."""

_CHECK = (
    "Check the address, the endpoint and region in the store.* options and that it can be reached from here, and "
    "that credentials are given."
)
_RUN_AGAIN = "See the store's own log, then run the same job again."


class NotNowError(StorageError):
    """What the store did not do now, it may do when it is asked again."""

    def __init__(self, message: str, why: str = "the store did not answer") -> None:
        super().__init__(message)
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
            f"objects below its root, and to delete them where it is trimmed or jobs are forgotten; give credentials "
            f"with store.* options or the environment."
        )
    if isinstance(error, FileNotFoundError) or status == "404":
        return StorageError(
            f"{doing}: the store has no such bucket or container. Create it, or check the address and the "
            f"endpoint and region in the store.* options."
        )
    if _PASSING.fullmatch(status):
        why = f"the store failed (HTTP {status})"
        return NotNowError(f"{doing}: {why}. {_RUN_AGAIN}", why)
    if status:
        return StorageError(
            f"{doing}: the store refused the request (HTTP {status}). It may not know conditional puts "
            f"(If-None-Match: *), on which the log rests: then use another store, or a newer version of this one."
        )
    if _NO_ANSWER not in str(error):
        return StorageError(f"{doing}: what answers is not such a store ({type(error).__name__}). {_CHECK}")
    nobody = any(sign in str(error) for sign in _NOBODY_THERE)
    kind = NobodyThereError if nobody else NotNowError
    why = f"the store did not answer ({type(error).__name__})"
    return kind(f"{doing}: {why}. {_CHECK}", why)


def _status(error: BaseException) -> str:
    """The HTTP status that a store answered with, empty when it did not answer.

    A 400 may be the one with which S3 gives up a connection that stood still, and no refusal. The answer to a HEAD
    has no body, so it does not say.
    """
    text = str(error)
    found = re.search(r"status code: (\d{3})", text)
    status = found[1] if found else ""
    timed_out = "<Code>RequestTimeout</Code>" in text or "Error performing HEAD" in text
    return "400 RequestTimeout" if status == "400" and timed_out else status
