"""Read Java's key stores: a client takes trusted certificates as PEM, and a key from PKCS12.

Since Java 9, keytool writes PKCS12 files, and Java also reads them if their type is JKS. So the content of a file
determines its format here. A file of the old format JKS is an error, because no maintained library reads it.
"""

from pathlib import Path

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.tls import (
    CONVERT_KEY_STORE,
    CONVERT_TRUST_STORE,
    CONVERT_TRUST_STORE_P12,
    KEY_STORE,
    TRUST_PASSWORD,
    TRUST_STORE,
)

_FORMATS_OF_SUN = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""How the files of the formats JKS and JCEKS begin."""


def with_stores(values: dict[str, str]) -> dict[str, str]:
    """Return settings under librdkafka's names, and the certificates of a trust store instead of its file.

    Raises:
        OptionError: A file cannot be read, is of the format JKS, or its password is wrong.
    """
    if KEY_STORE in values:
        _check_format(KEY_STORE, _content(KEY_STORE, values[KEY_STORE]), CONVERT_KEY_STORE, "PKCS12")
    if TRUST_STORE not in values:
        return values
    content = _content(TRUST_STORE, values[TRUST_STORE])
    _check_format(TRUST_STORE, content, CONVERT_TRUST_STORE, "PEM")
    others = {name: value for name, value in values.items() if name not in (TRUST_STORE, TRUST_PASSWORD)}
    return {**others, "ssl.ca.pem": _certificates(content, values.get(TRUST_PASSWORD))}


def _content(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise OptionError(
            f"option kafka.{setting} is not usable: the file cannot be read here ({type(error).__name__}). The "
            "driver and every worker must have it under the same path."
        ) from None


def _check_format(setting: str, content: bytes, command: str, kind: str) -> None:
    if content.startswith(_FORMATS_OF_SUN):
        raise OptionError(
            f"option kafka.{setting} is not usable: the file is of Java's old format JKS, which the client does not "
            f"read. Convert it: {command}. Then set kafka.{setting} to the new file, and its type to {kind}."
        )


def _certificates(content: bytes, password: str | None) -> str:
    """Return the certificates of a PKCS12 file as PEM."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.serialization import Encoding, pkcs12  # noqa: PLC0415 - an extra
    except ImportError:
        raise OptionError(
            f"option kafka.{TRUST_STORE} is PKCS12, and reading it needs the library cryptography, for the driver "
            "and every worker: pip install 'spark-cas[pkcs12]'. Without it, convert the file and set its type to "
            f"PEM: {CONVERT_TRUST_STORE_P12}."
        ) from None
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise OptionError(
            f"option kafka.{TRUST_STORE} is not usable: the file is no PKCS12 store of a supported kind, or "
            f"kafka.{TRUST_PASSWORD} is not its password. If the file is PEM, set kafka.ssl.truststore.type to PEM."
        ) from None
    if store.key is not None or not store.additional_certs:
        raise OptionError(
            f"option kafka.{TRUST_STORE} is not usable: the file must have trusted certificates and no private key. "
            f"Export the certificates, and set the type to PEM: {CONVERT_TRUST_STORE_P12}."
        )
    return "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in store.additional_certs)
