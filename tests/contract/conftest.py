"""Fixtures of the servers that the object log's tests run against."""

from tests.objects.servers import azure, s3
from tests.objects.versity import versity

__all__ = ["azure", "s3", "versity"]
