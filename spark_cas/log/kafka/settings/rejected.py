"""Name the setting that kept a client from starting, without its value or the client's error text."""

import re
from collections.abc import Iterable

from confluent_kafka import KafkaException

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.client_settings import SETTINGS
from spark_cas.log.kafka.settings.secrets import RESOLVED

_PATHS = {
    "ssl.ca.location": "kafka.ssl.truststore.location",
    "ssl.certificate.location": "kafka.ssl.keystore.location",
    "ssl.key.location": "kafka.ssl.keystore.location",
    "ssl.keystore.location": "kafka.ssl.keystore.location",
}

_NAMES = {**RESOLVED, **_PATHS, **{setting.rdkafka: f"kafka.{setting.java}" for setting in SETTINGS}}


def unusable(error: KafkaException, settings: Iterable[str]) -> OptionError:
    """Return the error for a client that rejected its settings. ``settings`` are their names."""
    message = error.args[0].str()
    result = [
        name for name in _NAMES if name in settings and re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", message)
    ]
    subject = _NAMES[result[0]] if result else "one of the settings kafka.*"
    return OptionError(
        f"the Kafka client rejected its configuration: {subject} is not usable. Check that files exist on every "
        f"machine and have the right content, that a key belongs to its certificate, that passwords are right, and "
        f"that timeouts are consistent."
    )
