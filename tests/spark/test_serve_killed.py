"""A process that serves an application's stores is killed while clients read and write, on real Spark and Kafka.

What else can happen to such processes is in `tests/spark/serve_drills.py`, which takes longer.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from streams.config.settings import Execution
from tests.spark import apps
from tests.spark.harness import Harness
from tests.spark.live import eventually, running
from tests.spark.serving import TASKS, Servers, get, has_begun, lose


@pytest.mark.parametrize("execution", [Execution.MICRO_BATCH, pytest.param(Execution.LIVE, marks=pytest.mark.long)])
def test_no_read_fails_while_the_process_that_has_the_key_is_killed(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execution: Execution
) -> None:
    source, counts, sums = harness.topic("in", TASKS), harness.topic("counts", TASKS), harness.topic("sums", TASKS)
    monkeypatch.setenv(apps.BLOCKS, f"{source} {counts} {sums}")
    servers = Servers(harness, tmp_path)

    def kill(url: str) -> None:
        servers.processes[url].kill_group()
        with pytest.raises(httpx2.TransportError):
            get(f"{url}/v1/health")

    with ExitStack() as stack:
        stack.enter_context(running(harness, apps.blocks(), execution=execution))
        stack.callback(servers.close)
        eventually(lambda: has_begun(harness), "the application has begun")
        # Two share the tasks, and a third one has a copy of all.
        shared = [servers.start(), servers.start()]
        lose(servers, shared, servers.start("--group", "whole"), source, kill)
