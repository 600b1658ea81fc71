"""A test double of Confluent Schema Registry: the documented contract of the requests that the tests make.

It keeps schemas in memory. It checks no compatibility, and has neither modes nor contexts. See "Schema Registry API
Reference" in Confluent's documentation; version 8.0 added GUIDs.
"""

import base64
import json
import re
import threading
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

_TYPE = "application/vnd.schemaregistry.v1+json"
_SUBJECT = re.compile(r"/subjects/([^/]+)/versions(?:/([^/]+))?")


class RegistryDouble:
    """The schemas, and the requests that the double answered."""

    def __init__(self, login=None):
        self.login = login
        self.url = ""
        self.failure = None
        """A status of HTTP for each reply."""
        self.requests = []
        self._schemas = []
        """The body of each schema. Its id is its position and 1."""
        self._versions = {}
        """The ids of each subject."""

    def register(self, subject, schema, **fields):
        """Register a schema, and return its id."""
        body = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **fields}
        if body not in self._schemas:
            self._schemas.append(body)
        number = self._schemas.index(body) + 1
        versions = self._versions.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method, target, body, authorization):
        """Return the status and the JSON of a reply."""
        path = urlsplit(target).path
        self.requests.append((method, path))
        if self.failure is not None:
            return self.failure, {"error_code": self.failure * 100, "message": "failure"}
        expected = None if self.login is None else f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if expected is not None and authorization != expected:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        return self._found(method, path, body)

    def _found(self, method, path, body):
        if match := re.fullmatch(r"/schemas/ids/([0-9]+)", path):
            return self._schema(int(match[1]))
        if match := re.fullmatch(r"/schemas/guids/([0-9a-f-]+)", path):
            guids = {guid_of(number): number for number in range(1, len(self._schemas) + 1)}
            return self._schema(guids.get(match[1], 0))
        if match := _SUBJECT.fullmatch(path):
            subject = unquote(match[1])
            if method == "POST" and match[2] is None:
                number = self.register(subject, **json.loads(body))
                return 200, {"id": number, "guid": guid_of(number), **self._schemas[number - 1]}
            return self._version(subject, match[2])
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _schema(self, number):
        if not 1 <= number <= len(self._schemas):
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, {"guid": guid_of(number), **self._schemas[number - 1]}

    def _version(self, subject, version):
        if subject not in self._versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        versions = self._versions[subject]
        at = len(versions) if version == "latest" else int(version)
        if not 1 <= at <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        number = versions[at - 1]
        return 200, {"subject": subject, "version": at, "id": number} | self._schema(number)[1]


def guid_of(number):
    return str(uuid.UUID(int=0x89791762_2336_4186_9674_299B90A80000 + number))


@contextmanager
def registry_double(login=None):
    """Serve a double on a free port. Its URL is ``url``."""
    double = RegistryDouble(login)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer()

        def do_POST(self):
            self._answer()

        def _answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, reply = double.answer(self.command, self.path, body, self.headers.get("Authorization"))
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        double.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield double
        finally:
            server.shutdown()
            thread.join()
