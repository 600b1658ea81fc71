"""Resolve secrets that are given by reference, ``env:NAME`` or ``file:PATH``, when a client is created.

Options are sent to every worker and written to Spark's event log. A reference reveals nothing there. Each process
that creates a client, driver or worker, reads the secret itself.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from spark_cas.core.errors import OptionError

RESOLVED = {
    "sasl.oauthbearer.client.id": "the client id of OAUTHBEARER",
    "sasl.oauthbearer.client.secret": "the client secret of OAUTHBEARER",
    "sasl.password": "the password in kafka.sasl.jaas.config",
    "sasl.username": "the username in kafka.sasl.jaas.config",
    "ssl.ca.pem": "kafka.ssl.truststore.certificates",
    "ssl.certificate.pem": "kafka.ssl.keystore.certificate.chain",
    "ssl.key.password": "kafka.ssl.key.password",
    "ssl.key.pem": "kafka.ssl.keystore.key",
    "ssl.keystore.password": "kafka.ssl.keystore.password",
    "ssl.truststore.password": "kafka.ssl.truststore.password",
}
"""Settings under librdkafka's names whose values may be references, with the names that users know.

These are all secret settings, and those usually stored with them: user and client names, and certificates. All other
values are used unchanged. A secret that begins with ``env:`` or ``file:`` has to be in a variable or file itself.
"""


def resolve(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the settings under librdkafka's names, with references replaced by their values.

    One newline at the end of a file is not part of the secret.

    Raises:
        OptionError: A variable is not set, a file cannot be read, or the value is empty or contains NUL. The message
            names the setting and the variable, never a path or a value.
    """
    return {name: resolved(RESOLVED[name], value) if name in RESOLVED else value for name, value in pairs}


def resolved(setting: str, value: str) -> str:
    """Return the value of a setting, or of its reference. Raises OptionError as `resolve`."""
    kind, colon, reference = value.partition(":")
    if not colon or kind not in ("env", "file"):
        return value
    secret = _variable(setting, reference) if kind == "env" else _content(setting, reference)
    if not secret or "\0" in secret:
        place = "an environment variable" if kind == "env" else "a file"
        raise OptionError(f"{setting} refers to {place} that is empty or holds NUL. Put the secret there.")
    return secret


def _variable(setting: str, name: str) -> str:
    # An invalid variable name may be a secret that happens to begin with env:, so do not show it.
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise OptionError(
            f"{setting} begins with env:, but no name of an environment variable follows. If the secret begins with "
            "env:, store it in a variable or file."
        )
    secret = os.environ.get(name)
    if secret is None:
        raise OptionError(
            f"{setting} refers to the environment variable {name}, which is not set in this process. Set it for the "
            f"driver and, as spark.executorEnv.{name}, for the workers."
        )
    return secret


def _content(setting: str, path: str) -> str:
    try:
        content = Path(path).read_bytes().decode()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with NUL
        raise OptionError(
            f"{setting} refers to a file that cannot be read here ({type(error).__name__}). The driver and every "
            "worker must have it under the same path, as UTF-8."
        ) from None
    return content.removesuffix("\n").removesuffix("\r")
