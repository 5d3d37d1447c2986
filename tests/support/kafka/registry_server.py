"""A schema registry on loopback, with the answers of Confluent's REST interface."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


@dataclass
class Registry:
    """``answers`` by path: JSON, bytes or a status. ``asked`` are the paths of requests, ``auths`` their passwords."""

    url: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    auths: list[str | None] = field(default_factory=list)

    def add(self, number: int, schema: Any, **more: Any) -> None:
        """Add a schema by its id."""
        self.answers[f"/schemas/ids/{number}"] = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
        self.answers[f"/schemas/ids/{number}"].update(more)


@contextlib.contextmanager
def registry() -> Iterator[Registry]:
    """Run a registry without schemas."""
    found = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            found.auths.append(self.headers.get("Authorization"))
            answer = found.answers.get(self.path, 404)
            status = answer if isinstance(answer, int) else 200
            body = (
                answer if isinstance(answer, bytes) else json.dumps({} if isinstance(answer, int) else answer).encode()
            )
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{found.url}/elsewhere")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
