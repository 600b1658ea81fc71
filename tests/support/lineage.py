"""A server on 127.0.0.1 that receives OpenLineage events."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState


class Receiver(ThreadingHTTPServer):
    """Stores the events, and responds with ``status``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.events: list[RunEvent] = []
        self.status = 201

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.events.append(_event_of(fields))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _event_of(fields: dict[str, Any]) -> RunEvent:
    """Return an event of the library, whose classes check the values."""
    return RunEvent(
        eventTime=fields["eventTime"],
        producer=fields["producer"],
        eventType=RunState(fields["eventType"]),
        run=Run(**fields["run"]),
        job=Job(**fields["job"]),
        inputs=[InputDataset(**each) for each in fields["inputs"]],
        outputs=[OutputDataset(**each) for each in fields["outputs"]],
    )


@contextmanager
def lineage_receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
