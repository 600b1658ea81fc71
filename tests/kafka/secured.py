"""A broker with authentication and authorization: users, ACLs and a certificate."""

import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from spark_cas.log.kafka.client.client_errors import Right
from spark_cas.log.kafka.settings.address import kafka_spec
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import SECONDS, admin_of
from tools.kafka_broker import KafkaBroker

USER = "canary-user"
PASSWORD = "canary-password"
WRONG = "canary-wrong"

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=127.0.0.1 "
    "-addext subjectAltName=IP:127.0.0.1 && openssl pkcs8 -topk8 -nocrypt -in key.pem -out store.pem && "
    "cat cert.pem >> store.pem"
)
_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
_ANY_ACL = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type] # None means any name, as the client's documentation states
    ResourcePatternType.ANY,
    None,  # type: ignore[arg-type]
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)


@dataclass(frozen=True)
class Secured:
    """A broker with three listeners.

    Clients of ``open`` and ``tls`` are anonymous and may do anything. The user of ``sasl`` has only the rights of
    `allow`.
    """

    broker: KafkaBroker
    open: str
    sasl: str
    tls: str
    certificate: Path

    def allow(self, rights: Iterable[Right]) -> None:
        """Give the user these rights and no others."""
        admin = admin_of(self.open)
        for gone in admin.delete_acls([_ANY_ACL]).values():
            gone.result(SECONDS)
        bindings = [_binding(right) for right in rights]
        for made in admin.create_acls(bindings).values() if bindings else ():
            made.result(SECONDS)
        _await(lambda: len(admin.describe_acls(_ANY_ACL).result(SECONDS)) == len(bindings))

    def has_exactly(self, rights: Iterable[Right]) -> bool:
        """Return whether the user has these rights and no others."""
        admin = admin_of(self.open)  # its futures fail after it is garbage-collected
        return {*admin.describe_acls(_ANY_ACL).result(SECONDS)} == {_binding(each) for each in rights}

    def spec(self, topic: str, **given: str) -> KafkaSpec:
        """Return the spec of a topic for the user. The topic's name is the prefix of ids and groups."""
        return kafka_spec(self.sasl, topic, sasl() | given, prefix=topic)


def sasl(user: str = USER, password: str = PASSWORD, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    """Return a user's settings under their Java names."""
    return {
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_PLAIN} username="{user}" password="{password}";',
    }


@contextmanager
def secured_broker(conf: Path, folder: Path, **more: str) -> Iterator[Secured]:
    """Start a broker with these listeners and ``more`` settings. ``folder`` is for its certificate."""
    subprocess.run(_CERTIFICATE, cwd=folder, shell=True, check=True, capture_output=True)  # noqa: S602
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "offsets.retention.minutes": "1440",
        "transaction.partition.verification.enable": "false",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{_PLAIN} user_{USER}="{PASSWORD}";',
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.location": str(folder / "store.pem"),
        **more,
    }
    listeners = {"SASL": "SASL_PLAINTEXT", "TLS": "SSL"}
    with KafkaBroker(conf, settings=settings, secured=listeners) as broker:
        sasl_address, tls_address = broker.address_at("SASL"), broker.address_at("TLS")
        yield Secured(broker, broker.bootstrap, sasl_address, tls_address, folder / "cert.pem")


def _binding(right: Right) -> AclBinding:
    operation = "".join(f"_{letter}" if letter.isupper() else letter for letter in right.operation)[1:].upper()
    return AclBinding(
        _KINDS[right.kind],
        right.name,
        ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL,
        f"User:{USER}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )


def _await(condition) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
