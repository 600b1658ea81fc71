"""Explain why a client cannot reach its brokers, from its error callback and its log lines of failed connections."""

import re

from confluent_kafka import KafkaError

from spark_cas.log.kafka.client.codes import UNREACHABLE, reason_of

# ruff: noqa: SLF001 - librdkafka names its own errors with an underscore; they are public

LOG_LEVEL = 6
"""The client's setting ``log_level`` (of syslog) with which it logs each connection that ends."""

_FAILED = re.compile(r"(?:\w+://)?(\S+?)/(?:bootstrap|\d+): (.*)$")
"""The text of a log line: the broker's address, and the failure."""

_PROTOCOL = "Set option kafka.security.protocol to the protocol of the brokers' listener."
_ADDRESS = "Check that the address is right, and that the brokers run there."
_MECHANISM = "Set option kafka.sasl.mechanism to one that the brokers have."

_CAUSES = (
    (r"not valid in current SASL state", KafkaError._AUTHENTICATION, "{} does not use SASL", _PROTOCOL),
    (r"Unsupported SASL mechanism", KafkaError._AUTHENTICATION, "{} does not have this SASL mechanism", _MECHANISM),
    (r"SASL authentication error", KafkaError._AUTHENTICATION, "{} refused the credentials", None),
    (r"certificate|alert", KafkaError._SSL, "TLS with {} failed because of a certificate", None),
    (r"Failed to resolve", KafkaError._RESOLVE, "the host name in {} is unknown here", None),
    (r"Connection refused", None, "connection refused by {}", _ADDRESS),
    (r"PLAINTEXT broker|in state SSL_HANDSHAKE", None, "{} ended the TLS handshake, as without TLS", _PROTOCOL),
    (
        r"Disconnected.* in state (?:APIVERSION_QUERY|AUTH_\w+)",
        None,
        "{} closed the connection at the first request, as with TLS or SASL",
        _PROTOCOL,
    ),
    (r"[Tt]imed out", None, "{} did not answer in time", None),
    (r"Connect to \S+ failed", None, "no connection to {}", None),
    (r"Disconnected", None, "{} closed the connection", None),
)
"""Texts of librdkafka 2.16, the most specific first: a code that only these causes have, the cause, its own fix."""

_SPECIFIC = {code for _, code, *_ in _CAUSES if code is not None}
_MOST_ADDRESSES = 4


class Troubles:
    """The failures that one client has recorded since the last answer."""

    def __init__(self) -> None:
        self.codes = set[int]()
        """Codes of the error callback."""
        self.silent = False
        """Whether a broker that was connected left a request unanswered. The client then closes the connection."""
        self._causes: dict[str, int] = {}
        """By address, the most specific cause: its index in `_CAUSES`."""

    def take(self, error: KafkaError) -> None:
        """Take an error, as the client's ``error_cb``. The log has its text as well."""
        self.codes.add(error.code())

    def log(self, _level: int, _form: str, *args: object) -> None:
        """Take a line, as `logging.Logger.log` would: facility, client, text."""
        if not args:
            return
        self.silent |= args[0] == "REQTMOUT"
        if args[0] in ("FAIL", "REQTMOUT"):
            self._read(str(args[-1]).partition("]: ")[2])

    def clear(self) -> None:
        """Forget all failures, because a broker answered."""
        self.codes.clear()
        self._causes.clear()
        self.silent = False

    def explain(self, code: int, addresses: str) -> tuple[str, str]:
        """Return the cause of a failure with this code, and the fix.

        ``addresses`` are the configured ones: the cause names them if no text named the one that failed.
        """
        result = self._causes
        if code in _SPECIFIC and not any(_CAUSES[index][1] == code for index in result.values()):
            result = {}
        if not result:
            return f"{reason_of(code)} ({addresses})", UNREACHABLE[code]
        causes = [_CAUSES[index][2].format(address) for address, index in result.items()]
        left = len(causes) - _MOST_ADDRESSES
        more = [f"{left} more brokers failed"] if left > 0 else []
        fix = _CAUSES[min(result.values())][3] or UNREACHABLE[code]
        return "; ".join(causes[:_MOST_ADDRESSES] + more), fix

    def _read(self, text: str) -> None:
        result = _FAILED.match(text)
        if result is None:
            return
        for index, (pattern, *_) in enumerate(_CAUSES):
            if re.search(pattern, result[2]):
                self._causes[result[1]] = min(index, self._causes.get(result[1], index))
                return
