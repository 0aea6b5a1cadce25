"""`streams ui` as a process, and what `streams run` refuses before it starts anything."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from streams.broker import EmbeddedBroker


def test_the_command_serves_until_it_is_stopped(broker: EmbeddedBroker, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "streams",
        "ui",
        "-a",
        "never-started",
        "--ui",
        "0",
        "-b",
        broker.bootstrap_servers,
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"dashboard: (http://127\.0\.0\.1:\d+/)\n", line)
        assert found, line
        with urllib.request.urlopen(f"{found[1]}api/v1/overview", timeout=60) as answer:
            overview = json.loads(answer.read())
        assert overview["sentence"].startswith("never-started has not committed anything yet; no process runs")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_a_run_is_refused_before_it_starts_anything(streams, tmp_path: Path) -> None:
    program = tmp_path / "page_of_a_run.py"
    program.write_text(
        "from streams import StreamsBuilder\nbuilder = StreamsBuilder()\nbuilder.stream('in').to('out')\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = streams("run", str(program), "-b", "127.0.0.1:1", "--ui", str(port))
    assert result.exit_code == 1
    assert f"the dashboard cannot be served at 127.0.0.1:{port}" in result.output
    result = streams("run", str(program), "-b", "127.0.0.1:1", "--ui", "0.0.0.0:8080")
    assert result.exit_code == 1
    assert "set ui_token" in " ".join(result.output.split())
