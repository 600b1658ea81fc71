"""The settings of Kafka's clients that may be references to secrets (`spark_cas.log.secret_references`)."""

from collections.abc import Iterable

from spark_cas.log.secret_references import resolved

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
values are used unchanged. A secret that begins like a reference has to be in a variable or file itself.
"""


def resolve(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the settings under librdkafka's names, with references replaced by their values.

    Raises OptionError as `resolved`.
    """
    return {name: resolved(RESOLVED[name], value) if name in RESOLVED else value for name, value in pairs}
