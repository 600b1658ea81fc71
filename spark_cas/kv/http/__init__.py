"""The store over HTTP: a server that is one node, and a client that finds the node to ask.

The server needs the extra ``kv`` (``pip install "/path/to/the/clone[kv]"``), the client nothing beyond the package.
There is no authentication and no encryption: whoever reaches the port reads and writes.
"""

from spark_cas.kv.http.client import Client

__all__ = ["Client"]
