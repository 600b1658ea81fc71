"""Read the settings of brokers, if the principal has permission."""

from collections.abc import Iterable
from concurrent.futures import wait
from contextlib import suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource, ResourceType

from spark_cas.log import timing
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.client.rights import NOT_PERMITTED

_RETENTION = "offsets.retention.minutes"


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


def ledger_kept_ms(admin: Admin) -> int | None:
    """Return how long a ledger entry outlives the newest chunk of its job in the partition, in milliseconds.

    None if this principal has no permission to read it. Raises StorageError.
    """
    return _shortest_ms(broker_settings(admin, each).get(_RETENTION) for each in alive_brokers(admin))


def recent_ledger_kept_ms(clients: ClientSet) -> int | None:
    """Return the same in about a second, from the brokers that answer in this time. It may be a minute old.

    None also if no broker answers. No error is raised, because a claim needs the answer only if the ledger may have
    expired.
    """
    return clients.cached("ledger", lambda: _read_once(clients.admin))


def _read_once(admin: Admin) -> int | None:
    seconds = 2 * timing.current().best_effort
    known: list[str | None] = []
    with suppress(KafkaException, TimeoutError):
        nodes = admin.client.describe_cluster(request_timeout=seconds).result(seconds).nodes
        resources = [ConfigResource(ResourceType.BROKER, str(each.id)) for each in nodes]
        requested = [admin.client.describe_configs([each], request_timeout=seconds)[each] for each in resources]
        wait(requested, seconds)
        for each in requested:
            with suppress(KafkaException, TimeoutError):
                known.append(each.result(0)[_RETENTION].value)
    return _shortest_ms(known)


def _shortest_ms(minutes: Iterable[str | None]) -> int | None:
    return min((60_000 * int(each) for each in minutes if each and each.isdigit()), default=None)
