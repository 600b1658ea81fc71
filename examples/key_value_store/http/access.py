"""Authentication and encryption between clients and nodes: a shared token, and TLS."""

import base64
import binascii
import hmac
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

_TOKEN = re.compile(r"[!-~]{16,}")


@dataclass(frozen=True, slots=True)
class Access:
    """The access of a client to the nodes, or of a node to other nodes."""

    token: str = field(default="", repr=False)
    """The token that all nodes and clients share; empty if the nodes require none."""
    tls: ssl.SSLContext | None = None
    """How to verify the certificates of nodes; None for connections without TLS."""

    @classmethod
    def of_files(cls, token: Path | None, ca: Path | None) -> "Access":
        """Return the access with the token and the CA certificates in these files. Raises ValueError."""
        return cls("" if token is None else read_token(token), None if ca is None else _trusting(ca))

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def permits(self, authorization: str | None) -> bool:
        """Return whether the header of a request has the token, as Bearer, or as the password of a browser."""
        scheme, _, credentials = (authorization or "").partition(" ")
        sent = credentials.strip().encode()
        if scheme.lower() == "basic":
            try:
                sent = base64.b64decode(sent, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        known = scheme.lower() in ("basic", "bearer")
        return not self.token or (hmac.compare_digest(sent, self.token.encode()) and known)


def read_token(file: Path) -> str:
    """Return the token in a file: one line of at least 16 printable ASCII characters. Raises ValueError."""
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the token file cannot be read ({type(error).__name__})"
        raise ValueError(msg) from None
    if not _TOKEN.fullmatch(token):
        msg = "expected a token of at least 16 printable ASCII characters in the token file"
        raise ValueError(msg)
    return token


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS settings of a node. Raises ValueError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password=_reject_password)
    except (OSError, ValueError) as error:
        msg = f"the certificate or its key cannot be loaded ({type(error).__name__})"
        raise ValueError(msg) from None
    return context


def _trusting(ca: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca))
    except OSError as error:
        msg = f"the CA certificates cannot be loaded ({type(error).__name__})"
        raise ValueError(msg) from None


def _reject_password() -> str:
    msg = "the key has a password"
    raise ValueError(msg)
