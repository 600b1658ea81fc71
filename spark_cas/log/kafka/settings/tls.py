"""Translate the ``ssl.*`` settings of Java's client to those of librdkafka: PEM, PKCS12 and JKS.

A client takes trusted certificates as PEM, and a key from PEM or PKCS12. Since Java 9, keytool writes PKCS12 files,
and Java also reads them if their type is JKS. So the content of a file determines its format here. The content of a
file of the old format JKS is converted to PEM in memory.
"""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spark_cas.core.errors import OptionError
from spark_cas.log.secret_references import PREFIXES

_TYPE, _LOCATION, _PASSWORD = "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password"
_KEY, _CHAIN, _KEY_PASSWORD = "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.password"
_TRUST_TYPE, _TRUST_LOCATION = "ssl.truststore.type", "ssl.truststore.location"
_TRUST_PASSWORD, _TRUST_PEM = "ssl.truststore.password", "ssl.truststore.certificates"
_ENDPOINT = "ssl.endpoint.identification.algorithm"

_KEY_STORE = frozenset({_TYPE, _LOCATION, _PASSWORD, _KEY, _CHAIN, _KEY_PASSWORD})
_TRUST_STORE = frozenset({_TRUST_TYPE, _TRUST_LOCATION, _TRUST_PASSWORD, _TRUST_PEM})

TLS_NAMES = _KEY_STORE | _TRUST_STORE | {_ENDPOINT}
"""Java's names that `tls_settings` reads."""

_JKS = b"\xfe\xed\xfe\xed"
_JCEKS = b"\xce\xce\xce\xce"
"""How the files of these formats begin."""

CONVERT_KEY_STORE = "keytool -importkeystore -srckeystore client.jks -destkeystore client.p12 -deststoretype PKCS12"
CONVERT_KEY_STORE_P12 = "openssl pkcs12 -in keystore.p12 -out client.pem"
CONVERT_TRUST_STORE = "keytool -list -rfc -keystore truststore.jks > truststore.pem"
CONVERT_TRUST_STORE_P12 = "openssl pkcs12 -in truststore.p12 -nokeys -out truststore.pem"

_Store = Any
"""The content of a PKCS12 file, of a class of cryptography, which is an extra."""


def tls_settings(values: Mapping[str, str]) -> dict[str, str]:
    """Return the trusted authorities, and the client's certificate and key, under librdkafka's names.

    Args:
        values: Settings under Java's names, none of them blank. Only those in ``TLS_NAMES`` are read. Passwords and
            PEM texts may be references such as ``env:NAME``, and stay references.

    Raises:
        OptionError: OpenSSL cannot read the type of a store, or settings contradict each other. For a store, the
            message has the command that converts it.
    """
    if values.get(_ENDPOINT, "https").strip().lower() != "https":
        raise OptionError(
            f"option kafka.{_ENDPOINT} must be https, but has another value. Without this check, any holder of a "
            "trusted certificate could pose as the broker. Leave it out, and give the brokers certificates with "
            "their host names."
        )
    endpoint = {_ENDPOINT: "https"} if _ENDPOINT in values else {}
    return {**endpoint, **_trust_store(values), **_key_store(values)}


def _is_pem(values: Mapping[str, str], name: str) -> bool:
    kind = values.get(name, "JKS").strip().upper()
    if kind not in ("PEM", "PKCS12", "JKS"):
        raise OptionError(f"option kafka.{name} must be PEM, PKCS12 or JKS (default), but is not.")
    return kind == "PEM"


def _trust_store(values: Mapping[str, str]) -> dict[str, str]:
    if not values.keys() & _TRUST_STORE:
        return {}
    if not _is_pem(values, _TRUST_TYPE):
        return _java_trust_store(values)
    if _TRUST_PASSWORD in values:
        raise OptionError(
            f"option kafka.{_TRUST_PASSWORD} does not go with PEM, which has no password. Leave it out."
        )
    if (_TRUST_LOCATION in values) == (_TRUST_PEM in values):
        raise OptionError(
            f"a trust store of type PEM is either a file, kafka.{_TRUST_LOCATION}, or the certificates themselves, "
            f"kafka.{_TRUST_PEM}: give one of the two."
        )
    if _TRUST_LOCATION in values:
        return {"ssl.ca.location": _path(values, _TRUST_LOCATION)}
    return {"ssl.ca.pem": values[_TRUST_PEM]}


def _java_trust_store(values: Mapping[str, str]) -> dict[str, str]:
    if _TRUST_LOCATION not in values or _TRUST_PEM in values:
        raise OptionError(
            f"a trust store is a file, kafka.{_TRUST_LOCATION}, unless option kafka.{_TRUST_TYPE} is PEM. Give the "
            f"file, or set the type to PEM and give kafka.{_TRUST_PEM}."
        )
    password = {_TRUST_PASSWORD: values[_TRUST_PASSWORD]} if _TRUST_PASSWORD in values else {}
    return {_TRUST_LOCATION: _path(values, _TRUST_LOCATION), **password}


def _key_store(values: Mapping[str, str]) -> dict[str, str]:
    if not values.keys() & _KEY_STORE:
        return {}
    return _pem_key(values) if _is_pem(values, _TYPE) else _java_key_store(values)


def _pem_key(values: Mapping[str, str]) -> dict[str, str]:
    if _PASSWORD in values:
        raise OptionError(
            f"option kafka.{_PASSWORD} does not go with PEM. Leave it out; the password of the key is "
            f"kafka.{_KEY_PASSWORD}."
        )
    password = {_KEY_PASSWORD: values[_KEY_PASSWORD]} if _KEY_PASSWORD in values else {}
    inline = values.keys() & {_KEY, _CHAIN}
    if _LOCATION in values and not inline:
        # Java keeps the key and the certificates in one file. OpenSSL finds the part for each of the two settings.
        path = _path(values, _LOCATION)
        return {"ssl.certificate.location": path, "ssl.key.location": path, **password}
    if _LOCATION not in values and inline == {_KEY, _CHAIN}:
        return {"ssl.certificate.pem": values[_CHAIN], "ssl.key.pem": values[_KEY], **password}
    raise OptionError(
        f"a key store of type PEM is either a file, kafka.{_LOCATION}, or both kafka.{_CHAIN} and kafka.{_KEY}: give "
        "the one or the other."
    )


def _java_key_store(values: Mapping[str, str]) -> dict[str, str]:
    if _LOCATION not in values or _PASSWORD not in values or values.keys() & {_KEY, _CHAIN}:
        raise OptionError(
            f"a key store is a file with a password, unless option kafka.{_TYPE} is PEM: give kafka.{_LOCATION} and "
            f"kafka.{_PASSWORD}, and neither kafka.{_KEY} nor kafka.{_CHAIN}."
        )
    if values.get(_KEY_PASSWORD, values[_PASSWORD]) != values[_PASSWORD]:
        raise OptionError(
            f"option kafka.{_KEY_PASSWORD} differs from kafka.{_PASSWORD}: in a PKCS12 file the client opens both "
            f"with the latter. Leave it out; if the key has a password of its own: {CONVERT_KEY_STORE}."
        )
    return {_LOCATION: _path(values, _LOCATION), _PASSWORD: values[_PASSWORD]}


def _path(values: Mapping[str, str], name: str) -> str:
    """Return a path unchanged. It cannot be a reference, because the client opens the file itself."""
    if values[name].startswith(PREFIXES):
        raise OptionError(
            f"option kafka.{name} must be the plain path of a file that every worker has, without env:, file: "
            "or function: before it; those are for passwords and PEM texts."
        )
    return values[name]


def with_stores(values: dict[str, str]) -> dict[str, str]:
    """Read the PKCS12 and JKS stores when a client is created.

    Returns:
        The settings under librdkafka's names, with the certificates of a trust store instead of its file, and those
            and the key of a JKS key store. librdkafka knows neither.

    Raises:
        OptionError: A file cannot be read, or its password is wrong.
    """
    if _LOCATION in values and _content(values, _LOCATION, CONVERT_KEY_STORE, "PKCS12").startswith(_JKS):
        (certificates, key), password = _key_store_parts(values), values[_PASSWORD]
        values = {name: value for name, value in values.items() if name not in (_LOCATION, _PASSWORD)}
        values |= {"ssl.certificate.pem": certificates.decode(), "ssl.key.pem": key.decode()}
        values |= {"ssl.key.password": password}
    if _TRUST_LOCATION not in values:
        return values
    others = {name: value for name, value in values.items() if name not in (_TRUST_LOCATION, _TRUST_PASSWORD)}
    return {**others, "ssl.ca.pem": _certificates(values)}


def key_store_pem(values: Mapping[str, str]) -> bytes:
    """Return the certificates of a PKCS12 or JKS key store, and its private key, as PEM.

    The password of the store encrypts the key.

    Raises:
        OptionError: The file cannot be read, its password is wrong, or the library cryptography is missing.
    """
    return b"".join(_key_store_parts(values))


def _key_store_parts(values: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Return the certificates and the encrypted private key of `key_store_pem`."""
    content = _content(values, _LOCATION, CONVERT_KEY_STORE, "PKCS12")
    store = _store(content, _LOCATION, values[_PASSWORD], CONVERT_KEY_STORE_P12)
    if store.key is None or store.cert is None:
        raise OptionError(
            f"option kafka.{_LOCATION} is not usable: the file must have a private key with its certificate."
        )
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra

    encryption = serialization.BestAvailableEncryption(values[_PASSWORD].encode())
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key: bytes = store.key.private_bytes(pem, pkcs8, encryption)
    return _pem([store.cert, *store.additional_certs]), key


def _content(values: Mapping[str, str], setting: str, command: str, kind: str) -> bytes:
    """Return the content of a store. The command converts a store of an old format to another kind."""
    try:
        content = Path(values[setting]).read_bytes()
    except (OSError, ValueError) as error:
        raise OptionError(
            f"option kafka.{setting} is not usable: the file cannot be read here ({type(error).__name__}). The "
            "driver and every worker must have it under the same path."
        ) from None
    if content.startswith(_JCEKS) or (content.startswith(_JKS) and find_spec("jks") is None):
        library = " Or install the library that does, on every worker too: pip install 'spark-cas[jks]'."
        raise OptionError(
            f"option kafka.{setting} is not usable: the file is of Java's old format JKS or JCEKS, which the client "
            f"does not read. Convert it: {command}. Then set kafka.{setting} to the new file, and its type to {kind}."
            f"{library if content.startswith(_JKS) else ''}"
        )
    return content


def _certificates(values: Mapping[str, str]) -> str:
    """Return the certificates of a PKCS12 or JKS trust store as PEM."""
    content = _content(values, _TRUST_LOCATION, CONVERT_TRUST_STORE, "PEM")
    command = CONVERT_TRUST_STORE if content.startswith(_JKS) else CONVERT_TRUST_STORE_P12
    store = _store(content, _TRUST_LOCATION, values.get(_TRUST_PASSWORD), command)
    if store.key is not None or not store.additional_certs:
        raise OptionError(
            f"option kafka.{_TRUST_LOCATION} is not usable: the file must have trusted certificates and no private "
            f"key. Export the certificates, and set the type to PEM: {command}."
        )
    return _pem(store.additional_certs).decode()


def _store(content: bytes, setting: str, password: str | None, command: str) -> _Store:
    """Return the content of a PKCS12 or JKS file. The command converts the file to PEM."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415 - an extra
    except ImportError:
        raise OptionError(
            f"option kafka.{setting} is a store of Java, and reading it here needs the library cryptography (for a "
            f"trust store, on every worker too): pip install 'spark-cas[pkcs12]'. Without it, convert the file and "
            f"set its type to PEM: {command}."
        ) from None
    if content.startswith(_JKS):
        return _jks_store(content, setting, password)
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise OptionError(
            f"option kafka.{setting} is not usable: the file is no PKCS12 store of a supported kind, or "
            f"kafka.{setting.replace('location', 'password')} is not its password. If the file is PEM, set "
            f"kafka.{setting.replace('location', 'type')} to PEM."
        ) from None


def _jks_store(content: bytes, setting: str, password: str | None) -> _Store:
    """Return the content of a JKS file. As in Java, its digest is verified if there is a password."""
    import jks  # noqa: PLC0415 - an extra
    from cryptography import x509  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.serialization import load_der_private_key, pkcs12  # noqa: PLC0415 - an extra

    def certificate(der: bytes) -> pkcs12.PKCS12Certificate:
        return pkcs12.PKCS12Certificate(x509.load_der_x509_certificate(der), None)

    try:
        store = jks.KeyStore.loads(content, password)
        trusted = [certificate(each.cert) for each in store.certs.values()]
        keys = [*store.private_keys.values()]
        if not keys:
            return pkcs12.PKCS12KeyAndCertificates(None, None, trusted)
        [entry] = keys
        own, *chain = (certificate(der) for _, der in entry.cert_chain)
        key: Any = load_der_private_key(entry.pkey_pkcs8, None)
        return pkcs12.PKCS12KeyAndCertificates(key, own, chain)
    except Exception:  # noqa: BLE001 - the library has no common class for the errors of a damaged file
        raise OptionError(
            f"option kafka.{setting} is not usable: the JKS file is damaged, has several private keys, or "
            f"kafka.{setting.replace('location', 'password')} is not its password and that of its key."
        ) from None


def _pem(certificates: Iterable[Any]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - an extra

    return b"".join(each.certificate.public_bytes(Encoding.PEM) for each in certificates)
