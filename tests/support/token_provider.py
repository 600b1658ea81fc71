"""Functions for the option tokenProvider, and for references to secrets. Drivers and workers of tests import them."""

import base64
import json
import time

SUBJECT = "loader"
LIFETIME_SECONDS = 10.0
"""A client refreshes a token after 80% of its lifetime, to the next whole second. Clients share a token for half of
its lifetime, so on a busy machine a shorter one expires before a new client has logged in."""

HEADER = base64.urlsafe_b64encode(json.dumps({"alg": "none", "typ": "JWT"}).encode()).decode().rstrip("=")
"""The beginning of each token, by which tests recognize one."""

calls = 0
"""How often this process has called `fails_later`."""


def jwt(seconds: float) -> tuple[str, float]:
    """Return a JSON Web Token without a signature, as a broker with its default handler accepts it."""
    now = time.time()
    claims = json.dumps({"sub": SUBJECT, "iat": now, "exp": now + seconds}).encode()
    return f"{HEADER}.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.", now + seconds


def token() -> tuple[str, float]:
    return jwt(LIFETIME_SECONDS)


def password() -> str:
    return "canary-password"


def rejected() -> tuple[str, float]:
    """Return a token that the broker rejects, because it has expired for the broker."""
    return jwt(-LIFETIME_SECONDS)[0], time.time() + LIFETIME_SECONDS


def raises() -> tuple[str, float]:
    raise RuntimeError("canary-token")


def fails_later() -> tuple[str, float]:
    """Return one token, which is enough for a few appends, and raise at each later call."""
    global calls  # noqa: PLW0603 - the option names a function, which has no other place for it
    calls += 1
    return jwt(4 * LIFETIME_SECONDS) if calls == 1 else raises()


def hangs() -> tuple[str, float]:
    time.sleep(600)
    raise AssertionError


def exits() -> tuple[str, float]:
    raise SystemExit("canary-token")


def expired() -> tuple[str, float]:
    return "canary-token", time.time() - 1


def in_milliseconds() -> tuple[str, float]:
    return "canary-token", 1000 * time.time()


def incomplete() -> str:
    return "canary-token"
