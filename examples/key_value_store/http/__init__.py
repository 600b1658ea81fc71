"""The store over HTTP: a server that is one node, and a client that finds the node to ask.

The server needs starlette, uvicorn and anyio, the client nothing beyond spark_cas.
There is no authentication and no encryption: whoever reaches the port reads and writes.
"""

from key_value_store.http.client import Client

__all__ = ["Client"]
