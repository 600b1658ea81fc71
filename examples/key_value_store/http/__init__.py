"""The store over HTTP: a server for one node, and a client that finds the leader.

The server needs starlette, uvicorn and anyio; the client needs only spark_cas. Without a token, anyone with access to
the port can read and write all keys; without TLS, also read the token.
"""

from key_value_store.http.access import Access
from key_value_store.http.client import Client

__all__ = ["Access", "Client"]
