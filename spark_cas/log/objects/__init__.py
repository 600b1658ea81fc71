"""The object-log backend: a log in a directory or an object store, resting on put-if-absent alone."""

from spark_cas.log.objects.log import ObjectLog

__all__ = ["ObjectLog"]
