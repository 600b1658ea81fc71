"""Fixtures of the servers that the object log's tests run against."""

from tests.objects.servers import azure, s3

__all__ = ["azure", "s3"]
