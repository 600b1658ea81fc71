"""Read the settings of a broker, if the principal has permission."""

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource, ResourceType

from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask
from spark_cas.log.kafka.client.rights import NOT_PERMITTED


def broker_settings(admin: Admin, broker: int) -> dict[str, str]:
    """Return the settings of a broker, empty if this principal has no permission. Raises StorageError."""
    resource = ConfigResource(ResourceType.BROKER, str(broker))

    def question() -> dict[str, ConfigEntry]:
        requested = admin.client.describe_configs([resource], request_timeout=admin.request_seconds)
        try:
            result: dict[str, ConfigEntry] = admin.answer(requested[resource])
        except KafkaException as error:
            if error.args[0].code() in NOT_PERMITTED:
                return {}
            raise
        return result

    result = ask(admin, question, "looking at the brokers' settings")
    return {name: str(entry.value) for name, entry in result.items()}
