"""Put-if-absent of objects, with confirmation by reading back."""

from spark_cas.core.errors import StorageError
from spark_cas.core.put_reply import PutReply
from spark_cas.log.deadline import within
from spark_cas.log.objects.retry import RetryingStore
from spark_cas.log.objects.store_errors import require_readable


def put_once(store: RetryingStore, path: str, data: bytes) -> bytes | memoryview:
    """Put an object unless it exists, and return the stored bytes: those of the first writer.

    Args:
        store: the store
        path: the name of the object
        data: the bytes to put

    Raises:
        RecordTooLargeError: if readers would reject the object
        StorageError: if the put did not succeed until the deadline and the object does not exist
    """
    require_readable(len(data), store.at(path))
    doing = f"writing {store.at(path)}"
    with within(store.patience_seconds):
        wait = store.wait(doing)
        while store.create(path, data) is not PutReply.CREATED:
            result = store.get(path)
            if result is not None:
                return result
            if not wait.again("the store neither took it nor holds it"):
                raise StorageError(
                    f"{doing}: the store neither took it nor holds it after {wait.waited:.0f} s. Check that the "
                    f"store is well, then run the same job again."
                )
    return data
