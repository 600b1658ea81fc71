"""The ledger: progress as the metadata of a memberless group's offsets, committed in the rows' transaction."""

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_cas.core.errors import FormatError, StorageError
from spark_cas.core.plan import Progress
from spark_cas.core.plan_json import progress_from_json, to_json
from spark_cas.log.kafka.client.clients import TransactionalProducer, group_member
from spark_cas.log.kafka.client.codes import passes, reason_of
from spark_cas.log.kafka.client.error_text import plain_error
from spark_cas.log.kafka.client.rights import NOT_PERMITTED, on_groups, on_topic
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.patience import Wait

_MAX_METADATA_BYTES = 4096
_VERSION = 1
_LOOK_SHARE = 0.5
"""Of the time of a request: after so long without an answer it is looked whether there will be one."""
_PAUSE_SECONDS = 0.02
_MOST_OPEN = 4


class UndecidedError(StorageError):
    """A transaction that may change the ledger entry is open, or the group's coordinator does not answer."""


class Ledger:
    """The ledger of one job: a consumer that names the group and never joins it.

    Not the admin client, whose librdkafka (2.16) crashes the process when a group's coordinator has just moved.
    """

    def __init__(self, spec: KafkaSpec, job: str) -> None:
        self._consumer: Consumer = group_member(spec, spec.group(job))
        self._patience_seconds = spec.patience_seconds
        self._look_seconds = _LOOK_SHARE * spec.request_seconds
        self._rights = (on_groups("Read", spec.prefix), on_topic("Describe", spec.topic))

    def read(self, at: TopicPartition, log_id: str, timeout_seconds: float) -> Progress | None:
        """The job's entry once no transaction that may change it is open; None when there is none.

        An entry for another topic of the same name is none. Raises UndecidedError when such a transaction is still
        open after the timeout, StorageError, FormatError.
        """
        return self.read_all([at], log_id, timeout_seconds)[0]

    def read_all(
        self, ats: Sequence[TopicPartition], log_id: str, timeout_seconds: float
    ) -> tuple[Progress | None, ...]:
        """The same for several partitions, with one request."""
        wait = Wait(timeout_seconds, "reading the ledger", _PAUSE_SECONDS, _PAUSE_SECONDS)
        while True:
            try:
                found = self._committed(ats, min(self._look_seconds, max(0.01, wait.left)))
            except KafkaException as error:
                if not passes(error.args[0].code(), met=True):
                    raise plain_error(error, "reading the ledger", *self._rights) from None
                self._require_right()
                if not wait.again("a transaction of the job is open, or the broker that keeps it does not answer"):
                    raise UndecidedError(
                        f"the ledger entry of {_named(ats)} is undecided: a transaction of the same job is open, or "
                        f"the broker that coordinates it does not answer. Wait until it does, then run the same job "
                        f"again."
                    ) from None
            else:
                return tuple(_decode(each.metadata, log_id) if each.offset >= 0 else None for each in found)

    def _require_right(self) -> None:
        """The client waits for a coordinator that it may not ask, and says so to whoever polls it."""
        message = self._consumer.poll(0)
        error = None if message is None else message.error()
        if error is not None and error.code() in NOT_PERMITTED:
            raise plain_error(KafkaException(error), "reading the ledger", *self._rights)

    def _committed(self, ats: Sequence[TopicPartition], timeout_seconds: float) -> list[TopicPartition]:
        found: list[TopicPartition] = self._consumer.committed(
            [TopicPartition(at.topic, at.partition) for at in ats], timeout_seconds
        )
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return found

    def adding(
        self, producer: TransactionalProducer, topic: str, log_id: str, progress: Progress
    ) -> Callable[[], None]:
        """Begin to put an entry into the open transaction of the rows that it counts; call the result to wait for it.

        That raises KafkaException.
        """
        entry = _entry(topic, log_id, progress)
        adding = producer.adding([entry], self._consumer.consumer_group_metadata())

        def added() -> None:
            try:
                adding.result()
            except KafkaException as error:
                # A record that is on its way may have broken the transaction.
                raise KafkaException(producer.what_broke(error.args[0])) from None

        return added

    def erase(self, ats: Sequence[TopicPartition]) -> None:
        """Put offsets that say nothing in the place of the job's entries; brokers drop them with time.

        Not the group as a whole: another topic may have a job of this name. Raises StorageError.
        """
        doing = "erasing the ledger of a job"
        wait = Wait(self._patience_seconds, doing)
        while True:
            try:
                self._erase(ats)
            except KafkaException as error:
                code = error.args[0].code()
                if not passes(code, met=True) or not wait.again(reason_of(code)):
                    raise plain_error(error, doing, *self._rights) from None
            else:
                return

    def _erase(self, ats: Sequence[TopicPartition]) -> None:
        nothing = [TopicPartition(at.topic, at.partition, 0) for at in ats]
        for each in self._consumer.commit(offsets=nothing, asynchronous=False) or ():
            # The client raises only where all of them failed.
            if each.error is not None:
                raise KafkaException(each.error)

    def close(self) -> None:
        """Let go of the client."""
        self._consumer.close()


class Ledgers:
    """The ledgers that a process has open: those of the jobs that it asked for last."""

    def __init__(self, spec: KafkaSpec) -> None:
        self._spec = spec
        self._open: OrderedDict[str, Ledger] = OrderedDict()

    def of(self, job: str) -> Ledger:
        """The ledger of a job, good until some others were asked for."""
        if job not in self._open:
            self._open[job] = Ledger(self._spec, job)
        self._open.move_to_end(job)
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)[1].close()
        return self._open[job]

    def close(self) -> None:
        """Let go of all clients."""
        while self._open:
            self._open.popitem()[1].close()


def _named(ats: Sequence[TopicPartition]) -> str:
    return f"partition {ats[0].partition}" if len(ats) == 1 else f"some of {len(ats)} partitions"


def _entry(topic: str, log_id: str, progress: Progress) -> TopicPartition:
    metadata = json.dumps(
        {"v": _VERSION, "log_id": log_id, "progress": json.loads(to_json(progress))}, separators=(",", ":")
    )
    if len(metadata) > _MAX_METADATA_BYTES:
        msg = "progress does not fit into the metadata of an offset"
        raise AssertionError(msg)
    return TopicPartition(topic, progress.partition, progress.end_offset, metadata)


def _decode(metadata: str | None, log_id: str) -> Progress | None:
    if not metadata:
        return None
    try:
        fields = json.loads(metadata)
        if fields["v"] != _VERSION:
            raise FormatError(
                "the ledger was written by a newer version of spark_cas. Use that version, or a newer one."
            )
        if fields["log_id"] != log_id:
            return None
        return progress_from_json(json.dumps(fields["progress"]))
    except (KeyError, TypeError, ValueError):
        raise FormatError(
            "the ledger of the job holds something that spark_cas did not write: another program commits offsets "
            "to its group. Nothing was appended now. How many rows of the job are in the log is not known any more: "
            "read it, and write what it does not hold yet, and no more, under another job name."
        ) from None
