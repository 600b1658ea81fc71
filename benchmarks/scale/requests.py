"""The requests of a claim and an append to a store and to brokers, for stores that charge for requests."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.appending import appender
from benchmarks.kafka_broker import CONF, Topics
from spark_cas import RECORDS, open_log
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.backend import Backend
from spark_cas.log.load.planning import pin_plan
from spark_cas.log.objects import ObjectLog
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rig import proxied_broker
from tests.objects.places import flaky_log

_APPENDS = 32
"""Appends: enough to include the occasional hint objects with their share."""
_ROWS = pa.Table.from_pylist([{"key": b"key", "value": b"value"}], RECORDS)
_OF_A_STORE = {
    "create": {"PUT": 1},
    "overwrite": {"PUT": 1},
    "get": {"GET": 1},
    "get_end": {"HEAD": 1, "GET": 1},
    "below": {"LIST": 1},
    "below after": {"LIST": 1},
    "folders": {"LIST": 1},
}
"""The HTTP requests of each operation. A listing takes one request per 1,000 names."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one step, by kind."""

    step: str
    each: dict[str, float]


def count_requests() -> list[Requests]:
    """Count the requests of a log in an object store and of a log on Kafka, each with one partition."""
    return [*_of_a_store(), *_of_brokers()]


def _of_a_store() -> list[Requests]:
    log, store = flaky_log()

    def counted() -> Counter[str]:
        found: Counter[str] = Counter()
        for operation, times in store.asked.items():
            for kind, each in _OF_A_STORE[operation].items():
                found[kind] += times * each
        return found

    def opened_anew() -> Backend:
        return ObjectLog(log.spec, store)

    return _steps("object store", opened_anew, counted)


def _of_brokers() -> list[Requests]:
    with proxied_broker(CONF) as proxied:
        topic = Topics(proxied.direct).kept(1)

        def counted() -> Counter[str]:
            return Counter({_name(api): times for api, times in proxied.proxy.traffic.requests.items()})

        return _steps("Kafka", lambda: open_log(f"kafka://{proxied.bootstrap}/{topic}"), counted)


def _steps(where: str, opened_anew: Callable[[], Backend], counted: Callable[[], Counter[str]]) -> list[Requests]:
    """Count the requests of a claim in a newly opened log, and of each chunk that follows."""
    with opened_anew() as log:
        append = appender(log, 0, _ROWS)
        before = counted()
        for _ in range(_APPENDS):
            append()
        per_append = _per(counted() - before, _APPENDS)
        plan = pin_plan(log, "another", ExpectedOffsets.parse("end"))
    with opened_anew() as log:
        before = counted()
        log.claim(0, plan)
        per_claim = _per(counted() - before, 1)
    return [Requests(f"{where}: claim", per_claim), Requests(f"{where}: append of a chunk", per_append)]


def _name(api: int) -> str:
    return next((known.name for known in Api if known == api), f"API {api}")


def _per(found: Counter[str], times: int) -> dict[str, float]:
    return {kind: count / times for kind, count in sorted(found.items())}
