"""Whether credentials may go over a connection: the hosts that are this very machine are excepted."""

import ipaddress
import re
from collections.abc import Iterable

from spark_cas.core.errors import OptionError

# Scheme-less, as users of Spark's connector write it; whatever else the client would understand is no loopback.
_SERVER = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\]/@\s]+))(?::\d+)?")

_SENDS_ITS_SECRET = frozenset({"PLAIN", "OAUTHBEARER"})


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own: ``localhost``, 127.0.0.0/8 or ``::1``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_transport(bootstrap: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Refuse to send a secret in the clear to another machine.

    ``bootstrap`` is what ``kafka.bootstrap.servers`` holds, ``pairs`` are settings under librdkafka's names. With
    PLAIN and OAUTHBEARER the client sends the password or token itself, so that over SASL_PLAINTEXT every server
    has to be on the loopback interface, where tests and tunnels are. SCRAM sends a proof only and is let through.
    Only what is given is looked at: a broker behind a tunnel may name another host for the connections that follow.
    Raises OptionError, which names no server.
    """
    settings = dict(pairs)
    mechanism = settings.get("sasl.mechanism", "")
    if settings.get("security.protocol") != "sasl_plaintext" or mechanism not in _SENDS_ITS_SECRET:
        return
    servers = [server.strip() for server in bootstrap.split(",") if server.strip()]
    if not servers or not all(_is_local(server) for server in servers):
        raise OptionError(
            f"option kafka.security.protocol is SASL_PLAINTEXT, and kafka.sasl.mechanism {mechanism} would send its "
            "secret in the clear to a server that is not this machine. Set kafka.security.protocol to SASL_SSL, or "
            "use SCRAM-SHA-512, which sends no secret."
        )


def _is_local(server: str) -> bool:
    found = _SERVER.fullmatch(server)
    return found is not None and is_loopback(found["v6"] or found["host"])
