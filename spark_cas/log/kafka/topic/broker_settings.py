"""Read the settings of brokers, if the principal has permission."""

from contextlib import suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource, ResourceType

from spark_cas.core.errors import StorageError
from spark_cas.log import timing
from spark_cas.log.deadline import within
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask
from spark_cas.log.kafka.client.kept_clients import ClientSet
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


def alive_brokers(admin: Admin) -> list[int]:
    """Return the ids of the brokers that are alive. Raises StorageError."""

    def question() -> list[int]:
        described = admin.answer(admin.client.describe_cluster(request_timeout=admin.request_seconds))
        return sorted(each.id for each in described.nodes)

    return ask(admin, question, "listing the brokers")


def ledger_kept_ms(clients: ClientSet) -> int | None:
    """Return the shortest time for which a broker keeps a ledger entry, in milliseconds; None if it is not known.

    The time begins with the newest chunk of the entry's job. The result is at most a minute old. It omits a broker
    that does not answer within `Timing.best_effort`.
    """
    return clients.cached("ledger", lambda: _ledger_kept_ms(clients.admin))


def _ledger_kept_ms(admin: Admin) -> int | None:
    known = []
    for broker in alive_brokers(admin):
        with suppress(StorageError), within(timing.current().best_effort):
            known.append(broker_settings(admin, broker).get("offsets.retention.minutes"))
    return min((60_000 * int(each) for each in known if each is not None), default=None)
