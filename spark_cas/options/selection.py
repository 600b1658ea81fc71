"""Which logs a read takes, and which of their partitions."""

import re
from dataclasses import dataclass, replace

from spark_cas.core.errors import OptionError, TruncatedError
from spark_cas.core.plan import Layout
from spark_cas.log.open import AnySpec, answered_before
from spark_cas.options.topic_partitions import TopicPartition, listing


@dataclass(frozen=True, slots=True)
class Selection:
    """One log, or several topics of the same brokers."""

    spec: AnySpec
    """Where they are and how they are reached: the topics differ in their name alone."""
    topics: tuple[str, ...]
    """Sorted; none when a pattern says which."""
    pattern: str | None = None
    """A regular expression of Python that the whole name of a topic has to match."""
    assigned: tuple[TopicPartition, ...] = ()
    """Sorted; none when all partitions are read."""
    log_id: str | None = None
    """Which log the one log has to be, where that is known: another one may have its name by now."""

    def spec_of(self, topic: str) -> AnySpec:
        """Where one of the logs is."""
        return self.spec.of_topic(topic)

    def answered_before(self) -> "Selection":
        """The same for somebody who knows that they were reached, as `spark_cas.log.open.answered_before` says."""
        return replace(self, spec=answered_before(self.spec))

    def selects(self, at: TopicPartition) -> bool:
        """Whether these options select a partition, if it exists."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, at.topic) is not None
        return at.topic in self.topics and (not self.assigned or at in self.assigned)

    def only(self) -> AnySpec:
        """The one log; OptionError where several may be read."""
        if len(self.topics) != 1:
            raise OptionError("this is for one log, and several are named. Give one topic with the option topic.")
        return self.spec

    def require_meant(self, topic: str, layout: Layout) -> None:
        """TruncatedError when a log is not the one that is meant."""
        if self.log_id not in (None, layout.log_id):
            raise TruncatedError(
                f"log {topic} is not the one that is to be read: it was deleted and recreated, and its offsets mean "
                f"other records now. Bootstrap the new log, or leave option logId out."
            )

    def partitions_of(self, topic: str, layout: Layout) -> tuple[int, ...]:
        """Which partitions of a log are read; OptionError for one that it does not have."""
        wanted = tuple(at.partition for at in self.assigned if at.topic == topic)
        absent = [TopicPartition(topic, each) for each in wanted if each >= layout.partitions]
        if absent:
            raise OptionError(
                f"option assign names {listing(absent)}, but the topic has {layout.partitions} partitions (0 to "
                f"{layout.partitions - 1}). Name some of these."
            )
        return wanted or tuple(range(layout.partitions))
