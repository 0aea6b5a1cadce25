"""A schema registry for tests: a small HTTP server on the loopback interface that speaks the registry's REST API.

A real registry cannot be installed here (it comes in no package that the project may use), so what is proven is that Confluent's
own client, over real HTTP, gets along with the API as documented: registration, look-up, versions, errors and their codes.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = tuple[int, Any]
QUICK = {"max.retries": 0, "timeout": 60}
"""Settings of a client that does not wait for a registry that is silent."""


class FakeRegistry:
    """Schemas by id (as a GUID: the id as its number), subjects as lists of ids.

    Attributes:
        url: where it listens.
        subjects: subject -> ids of its versions, the first at version 1.
        requests: method and path of each request.
        down: answer everything with 503.
        incompatible: subjects that take no further version.
        logins: what clients sent as Authorization.
    """

    def __init__(self) -> None:
        self.url = ""
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str]] = []
        self.logins: set[str | None] = set()
        self.down = False
        self.incompatible: set[str] = set()
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, body: dict[str, Any] | None) -> Answer:
        with self._lock:
            self.requests.append((method, path))
            if self.down:
                return 503, {"error_code": 50301, "message": "down"}
            match [method, *map(unquote, path.strip("/").split("/"))]:
                case ["POST", "subjects", subject, "versions"]:
                    return self._register(subject, body or {})
                case ["POST", "subjects", subject]:
                    return self._look_up(subject, body or {})
                case ["GET", "schemas", "ids", number]:
                    found = self.schemas.get(int(number))
                    return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
                case ["GET", "schemas", "guids", guid]:
                    found = self.schemas.get(uuid.UUID(guid).int)
                    return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
                case ["GET", "subjects", subject, "versions", version]:
                    return self._version(subject, version)
        return 404, {"error_code": 404, "message": f"{method} {path} is not part of this fake"}

    def _register(self, subject: str, body: dict[str, Any]) -> Answer:
        known = [number for number, schema in self.schemas.items() if schema == body]
        number = known[0] if known else len(self.schemas) + 1
        versions = self.subjects.get(subject, [])
        if number not in versions:
            if subject in self.incompatible:
                return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
            self.schemas[number] = body
            self.subjects[subject] = [*versions, number]
        return 200, {"id": number}

    def _look_up(self, subject: str, body: dict[str, Any]) -> Answer:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for version, number in enumerate(self.subjects[subject], 1):
            if self.schemas[number] == body:
                return 200, {"subject": subject, "version": version, "id": number, **body}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _version(self, subject: str, version: str) -> Answer:
        versions = self.subjects.get(subject)
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        at = len(versions) if version == "latest" else int(version)
        if not 1 <= at <= len(versions):
            return 404, {"error_code": 40402, "message": "Version not found."}
        number = versions[at - 1]
        return 200, {"subject": subject, "version": at, "id": number, **self.schemas[number]}


@contextmanager
def running() -> Iterator[FakeRegistry]:
    """A registry on a free port, gone at the end."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            registry.logins.add(self.headers.get("Authorization"))
            status, answer = registry.answer(self.command, urlsplit(self.path).path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
