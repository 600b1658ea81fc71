"""Object log backend: a log in a directory or object store that supports put-if-absent."""

from spark_cas.log.objects.log import ObjectLog

__all__ = ["ObjectLog"]
