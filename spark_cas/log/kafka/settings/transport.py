"""Check whether credentials may be sent over a connection. Loopback addresses are always allowed."""

import ipaddress
import logging
import re
from collections.abc import Iterable
from functools import cache

from spark_cas.core.errors import OptionError

# Without a scheme, as in Spark's connector. Other forms that the client accepts are not treated as loopback.
_SERVER = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\]/@\s]+))(?::\d+)?")

_LOG = logging.getLogger("spark_cas")

_SENDS_ITS_SECRET = frozenset({"PLAIN", "OAUTHBEARER"})


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own: ``localhost``, 127.0.0.0/8 or ``::1``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_transport(bootstrap: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Prevent a secret from being sent unencrypted to another machine.

    With PLAIN and OAUTHBEARER, the client sends the password or token itself. So over SASL_PLAINTEXT, every server
    has to be on the loopback interface, as for tests and tunnels. SCRAM sends only a proof, and is allowed. But its
    rows are not encrypted, so the connector logs a warning once per process.

    The check covers the bootstrap servers only. A broker at the end of a tunnel may announce another host for later
    connections.

    Args:
        bootstrap: The value of ``kafka.bootstrap.servers``.
        pairs: Settings under librdkafka's names.

    Raises:
        OptionError: A secret would be sent unencrypted. The message names no server.
    """
    settings = dict(pairs)
    mechanism = settings.get("sasl.mechanism", "")
    if settings.get("security.protocol") != "sasl_plaintext":
        return
    servers = [server.strip() for server in bootstrap.split(",") if server.strip()]
    if servers and all(_is_local(server) for server in servers):
        return
    if mechanism in _SENDS_ITS_SECRET:
        raise OptionError(
            f"option kafka.security.protocol is SASL_PLAINTEXT, and kafka.sasl.mechanism {mechanism} would send its "
            "secret in the clear to a server that is not this machine. Set kafka.security.protocol to SASL_SSL, or "
            "use SCRAM-SHA-512, which sends no secret."
        )
    log_unencrypted(mechanism)


@cache
def log_unencrypted(mechanism: str) -> None:
    """Log once per process that the rows of a connection with a login are not encrypted."""
    _LOG.warning(
        "option kafka.security.protocol is SASL_PLAINTEXT: kafka.sasl.mechanism %s hides the password, but rows "
        "cross the network unencrypted, and other machines on the path can change them. Use SASL_SSL.",
        mechanism,
    )


def _is_local(server: str) -> bool:
    result = _SERVER.fullmatch(server)
    return result is not None and is_loopback(result["v6"] or result["host"])
