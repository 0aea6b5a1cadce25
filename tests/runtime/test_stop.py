"""A stop of a run over what is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streams import StreamsBuilder
from streams.config import StreamsConfig
from streams.driver.runner import StreamsApplication


def test_no_further_query_starts_once_it_is_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    running = StreamsApplication(
        builder.build(), StreamsConfig(application_id="app", bootstrap_servers="nowhere:1", available_now=True)
    )
    started: list[Any] = []

    def await_one(starts: Any) -> None:
        started.append(starts)
        running.stop()

    monkeypatch.setattr(running, "_await", await_one)
    subs = [SimpleNamespace(sub=SimpleNamespace(reads_internal=False)) for _ in range(3)]
    running._application = SimpleNamespace(subs=subs)  # type: ignore[assignment]
    running._run_once()
    assert len(started) == 1
