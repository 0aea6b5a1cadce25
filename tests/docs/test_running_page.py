"""The code of `docs/running.md` does what it says."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams import KafkaStreams, StreamsBuilder, Topology
from streams.config import StreamsConfig
from streams.driver import kafka_streams
from streams.driver.progress import NotebookProgress

PAGE = Path(__file__).parent.parent.parent / "docs" / "running.md"
TEXT = PAGE.read_text(encoding="utf-8")


class Application:
    """Ends by itself where the program waits for it, and when it is stopped."""

    progress = NotebookProgress("counts")

    def __init__(
        self, topology: Topology, config: StreamsConfig, on_running: Callable[[], None], on_event: object
    ) -> None:
        assert (config.application_id, config.bootstrap_servers) == ("counts", "localhost:9092")
        self._on_running = on_running
        self._stopped = threading.Event()

    def run(self, session: object = None) -> None:
        self._on_running()
        self._stopped.wait(0.1)

    def stop(self) -> None:
        self._stopped.set()


def build() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()


@pytest.mark.parametrize("code", re.findall(r"```py\n(.*?)```", TEXT, re.DOTALL))
def test_the_examples_run(code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kafka_streams, "_on_spark", Application)
    names: dict[str, Any] = {"build": build, "KafkaStreams": KafkaStreams}
    exec(compile(code, str(PAGE), "exec"), names)
    assert names["streams"].state is KafkaStreams.State.STOPPED
    if "stopped" in names:
        assert names["stopped"]
        assert capsys.readouterr().out.startswith("CREATED -> STARTING\n")


def test_the_page_lists_every_state() -> None:
    assert re.findall(r"^\| `([A-Z]+)` \|", TEXT, re.MULTILINE) == [state.value for state in KafkaStreams.State]
