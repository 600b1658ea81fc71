"""The store over HTTP: a server for one node, and a client that finds the leader.

The server needs starlette, uvicorn and anyio; the client needs only spark_cas. There is no authentication and no
encryption: anyone with access to the port can read and write all keys.
"""

from key_value_store.http.client import Client

__all__ = ["Client"]
