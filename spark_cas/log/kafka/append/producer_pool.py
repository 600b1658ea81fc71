"""The pool of the transactional producers of a process, which closes the least recently used ones."""

from typing import TYPE_CHECKING

from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.topic.coordinators import require_coordinators
from spark_cas.log.kafka.topic.topic_settings import recent_settings

if TYPE_CHECKING:
    from spark_cas.log.kafka.append.fence import Fence

_MOST_INSTANCES = 8
"""The limit, because an instance has threads and connections of its own, even while it is idle."""


class ProducerPool:
    """The fences of one process by transactional id. At most `_MOST_INSTANCES` of them have a producer."""

    def __init__(self, clients: ClientSet) -> None:
        self.spec = clients.readers.spec
        self._clients = clients
        self._holders: dict[str, Fence] = {}
        self._with_instance: dict[Fence, None] = {}
        """The most recently used fence is the last."""

    def take(self, fence: "Fence", transactional_id: str) -> None:
        """Give the transactional id to a fence, and room for an instance.

        The fence that held the id yields. The least recently used instances are closed.
        """
        holder = self._holders.get(transactional_id)
        if holder is not None and holder is not fence:
            holder.give_way()
        self._holders[transactional_id] = fence
        fence.drop()
        while len(self._with_instance) >= _MOST_INSTANCES:
            next(iter(self._with_instance)).drop()

    def mark_used(self, fence: "Fence") -> None:
        """Mark the instance of a fence as the most recently used."""
        self._with_instance.pop(fence, None)
        self._with_instance[fence] = None

    def forget(self, fence: "Fence") -> None:
        """Remove a fence that no longer has an instance."""
        self._with_instance.pop(fence, None)

    def most_batch_bytes(self, topic: str) -> int | None:
        """Return the largest batch that a topic accepts, in bytes.

        None if this principal may not read the topic's settings.

        Raises as `topic_settings`.
        """
        settings = recent_settings(self._clients, topic)
        return None if settings is None else settings.max_message_bytes

    def require_coordinators(self) -> None:
        """Check that the brokers can coordinate transactions. Raises NotAvailableError, StorageError."""
        require_coordinators(self._clients.admin)

    def require_token(self) -> None:
        """Raise OptionError if the clients have no valid token."""
        self._clients.admin.require_token()

    def close(self) -> None:
        """Close all instances."""
        for fence in [*self._with_instance]:
            fence.drop()
        self._holders.clear()
