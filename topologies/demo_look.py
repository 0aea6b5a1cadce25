"""The last part of the demonstration: the page and the stores of its application, served over HTTP, and one query."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from state.errors import StreamsError

_HOST = "127.0.0.1"
_POLL_S = 0.5
_STOP_S = 30.0
_START_S = 600.0
QUERY = "/v1/stores/delays-by-carrier/windows?key=JFK%7CB6&latest=1"
"""The last day of JetBlue at JFK."""


class NotServedError(StreamsError):
    """The stores of the demo cannot be read over HTTP."""


@dataclass(frozen=True)
class Look:
    """Where the demo can be looked at.

    Attributes:
        command: The command that serves it.
        page: The address of the page.
        query: The address of a row.
    """

    command: tuple[str, ...]
    page: str
    query: str

    def answer(self) -> Any:
        """What the query answers."""
        with urllib.request.urlopen(self.query, timeout=60) as answer:
            return json.loads(answer.read())


def free_port() -> int:
    """A port of this host that nobody listens at now."""
    with socket.create_server((_HOST, 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def served(script: Path, options: Sequence[str], page_port: int, log: Path) -> Iterator[Look]:
    """Serves the page and the stores of an application within the block, which begins once all stores can be read.

    Args:
        script: The topology's file.
        options: Options that name the application and its cluster.
        page_port: Where the page is served.
        log: The file for what the command says.

    Raises:
        NotServedError: The command has ended, or the stores cannot be read in time.
    """
    port = free_port()
    streams = str(Path(sys.executable).with_name("streams"))
    command = (streams, "serve", str(script), *options, "--http", str(port), "--ui", str(page_port))
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _wait(process, f"http://{_HOST}:{port}/v1/health", log)
        yield Look(command, f"http://{_HOST}:{page_port}/", f"http://{_HOST}:{port}{QUERY}")
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    end = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < end:
        # Until the server listens, and while copies are restored (503).
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError), urllib.request.urlopen(health, timeout=10):
            return
        time.sleep(_POLL_S)
    raise NotServedError(
        f"the stores cannot be read over HTTP; streams serve has said: {log.read_text(encoding='utf-8')}"
    )
