"""Read the settings of brokers, if the principal has permission."""

from concurrent.futures import wait
from contextlib import suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource, ResourceType

from spark_cas.log import timing
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

    The time begins with the newest chunk of the job in the partition. The result is at most a minute old. It omits a
    broker that does not answer within a second, and no error is raised, because it is only one more check.
    """
    return clients.cached("ledger", lambda: _ledger_kept_ms(clients.admin))


def _ledger_kept_ms(admin: Admin) -> int | None:
    seconds = 2 * timing.current().best_effort
    known = []
    with suppress(KafkaException, TimeoutError):
        nodes = admin.client.describe_cluster(request_timeout=seconds).result(seconds).nodes
        resources = [ConfigResource(ResourceType.BROKER, str(each.id)) for each in nodes]
        requested = [admin.client.describe_configs([each], request_timeout=seconds)[each] for each in resources]
        wait(requested, seconds)
        for each in requested:
            with suppress(KafkaException, TimeoutError):
                known.append(each.result(0)["offsets.retention.minutes"].value)
    return min((60_000 * int(each) for each in known if each and each.isdigit()), default=None)
