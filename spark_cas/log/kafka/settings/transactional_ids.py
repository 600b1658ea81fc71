"""The transactional ids of a topic's writers. For each id, the brokers fence all but the newest producer (KIP-98).

No id includes an attempt or a run, because brokers keep ids for days.
"""

import random

from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

_REGISTRY_IDS = 1024
"""Two writers that draw the same id at the same time fence each other, and retry. Brokers keep ids for days."""
_CHANCE = random.SystemRandom()


def id_of_partition(spec: KafkaSpec, partition: int, job: str | None) -> str:
    """Return the id whose newest producer may write a partition, with a job only for that job."""
    owner = f"{spec.prefix}/{spec.topic}/{partition}"
    return owner if job is None else f"{owner}/{job}"


def id_of_atomic_load(spec: KafkaSpec, job: str) -> str:
    """Return the id whose newest producer may write all partitions for an atomic load."""
    return f"{spec.prefix}/{spec.topic}/whole/{job}"


def id_of_load_locks(spec: KafkaSpec) -> str:
    """Return the id of the load lock. Partitions have numbers in this place, so it is unique."""
    return f"{spec.prefix}/{spec.topic}/grants"


def id_of_registry_write(spec: KafkaSpec, topic: str) -> str:
    """Return one of `_REGISTRY_IDS` ids that write to a registry topic, at random."""
    return f"{spec.prefix}/{topic}/{_CHANCE.randrange(_REGISTRY_IDS)}"


def id_of_preflight(spec: KafkaSpec) -> str:
    """Return the id with which a preflight checks that the brokers allow transactions."""
    return f"{spec.prefix}/preflight"
