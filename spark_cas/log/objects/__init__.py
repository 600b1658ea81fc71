"""Object log backend: a log in a directory or object store that supports put-if-absent."""

from spark_cas.log.objects.object_log import ObjectLog

__all__ = ["ObjectLog"]
