"""The logs that a read selects, and their partitions."""

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
    """The address and the client settings. The specs of several topics differ only in the name."""
    topics: tuple[str, ...]
    """Sorted; empty if a pattern selects the topics."""
    pattern: str | None = None
    """A Python regular expression that must match the whole topic name."""
    assigned: tuple[TopicPartition, ...] = ()
    """Sorted; empty to read all partitions."""
    log_id: str | None = None
    """The expected id of the log; None for any. A log recreated under the same name has another id."""

    def spec_of(self, topic: str) -> AnySpec:
        """Return the spec of one of the logs."""
        return self.spec.of_topic(topic)

    def answered_before(self) -> "Selection":
        """Return a copy that retries connection errors, for a caller that has reached the logs before."""
        return replace(self, spec=answered_before(self.spec))

    def selects(self, at: TopicPartition) -> bool:
        """Return whether these options select a partition, if it exists."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, at.topic) is not None
        return at.topic in self.topics and (not self.assigned or at in self.assigned)

    def only(self) -> AnySpec:
        """Return the spec of the one log; raise OptionError if the options may select several."""
        if len(self.topics) != 1:
            raise OptionError("this is for one log, and several are named. Give one topic with the option topic.")
        return self.spec

    def require_meant(self, topic: str, layout: Layout) -> None:
        """Raise TruncatedError if a log does not have the expected id."""
        if self.log_id not in (None, layout.log_id):
            raise TruncatedError(
                f"log {topic} is not the one that is to be read: it was deleted and recreated, and its offsets mean "
                f"other records now. Bootstrap the new log, or leave option logId out."
            )

    def partitions_of(self, topic: str, layout: Layout) -> tuple[int, ...]:
        """Return the selected partitions of a log; raise OptionError if it lacks one of them."""
        wanted = tuple(at.partition for at in self.assigned if at.topic == topic)
        absent = [TopicPartition(topic, each) for each in wanted if each >= layout.partitions]
        if absent:
            raise OptionError(
                f"option assign names {listing(absent)}, but the topic has {layout.partitions} partitions (0 to "
                f"{layout.partitions - 1}). Name some of these."
            )
        return wanted or tuple(range(layout.partitions))
