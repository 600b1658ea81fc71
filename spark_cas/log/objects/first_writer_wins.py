"""Putting what may be put only once, and finding out what became of it."""

from spark_cas.core.errors import StorageError
from spark_cas.core.put_reply import PutReply
from spark_cas.log.objects.retry import RetryingStore
from spark_cas.log.patience import within


def put_once(store: RetryingStore, path: str, data: bytes) -> bytes | memoryview:
    """Put an object unless there is one, and return the bytes that the name holds then: the first writer's.

    Raises StorageError when the store does not come to an answer while patience lasts.
    """
    doing = f"writing {store.at(path)}"
    with within(store.patience_seconds):
        wait = store.wait(doing)
        while store.create(path, data) is not PutReply.CREATED:
            found = store.get(path)
            if found is not None:
                return found
            if not wait.again("the store neither took it nor holds it"):
                raise StorageError(
                    f"{doing}: the store neither took it nor holds it after {wait.waited:.0f} s. Check that the "
                    f"store is well, then run the same job again."
                )
    return data
