"""Run moto's S3 on a free port of this machine, with conditional puts that are as atomic as those of S3.

Plain moto checks the name in one step and stores the object in another, with a thread for each request. Two
concurrent puts may both get the response that they created the object.

While the file of the environment variable IGNORE_CONDITIONS exists, the server ignores the conditions of puts.
"""

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple


class OnePutAtATime:
    """A WSGI application around another one, which handles only one PUT at a time."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "PUT":
            return self._application(environ, start_response)
        if "IGNORE_CONDITIONS" in os.environ and Path(os.environ["IGNORE_CONDITIONS"]).exists():
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with self._lock:
            return list(self._application(environ, start_response))


if __name__ == "__main__":
    moto = OnePutAtATime(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", 0, moto, threaded=True, request_handler=MotoRequestHandler)
