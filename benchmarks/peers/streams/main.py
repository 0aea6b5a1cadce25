"""Runs a workload's topology by the engine until SIGTERM: `python -m benchmarks.peers.streams.main CONFIG.json`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarks.workloads.base import RunConfig
from streams.config import StreamsConfig, load_config
from streams.driver.launch.ahead import session_ahead
from streams.driver.progress import Progress
from streams.metrics.application import StepFigures


class RestoreProgress(Progress):
    """The ordinary progress, and a line about the restore of the stores in the first micro-batch."""

    def __init__(self, title: str, threads: int) -> None:
        super().__init__(title)
        self._threads = threads
        self._told = False

    def step(self, sub: str, batch_id: int, steps: Collection[StepFigures]) -> None:
        """Takes in the reports of a micro-batch."""
        super().step(sub, batch_id, steps)
        seconds = [step.seconds.get("restore", 0.0) for step in steps]
        if seconds and not self._told:
            self._told = True
            # The tasks of a micro-batch run beside each other, as many as there are threads.
            print("RESTORED", json.dumps({"seconds": sum(seconds) / min(self._threads, len(seconds))}), flush=True)


LEASE_S = "lease_s"
"""A setting of the benchmark, not of the engine: how long a lease is, s. A soak has many of them."""


def settings_of(config: RunConfig) -> StreamsConfig:
    """The engine's settings for a run: its defaults, apart from places and what `--set` says."""
    given = {name: value for name, value in config.settings.items() if name != LEASE_S}
    spark = {name: given.pop(name) for name in list(given) if name.startswith("spark.")}
    options: dict[str, Any] = {
        "application_id": config.application_id,
        "bootstrap_servers": config.bootstrap_servers,
        "base_dir": Path(config.state_dir),
        "spark": {"spark.ui.enabled": "false", "spark.master": f"local[{config.threads},4]", **spark},
        **given,
    }
    return load_config(None, options)


def main() -> None:
    """Runs until SIGTERM."""
    # The workers import the workloads' functions.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    config = RunConfig(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    settings = settings_of(config)
    # As `streams run` does it: Java starts while the program is imported.
    with session_ahead(settings.application_id, settings.spark, settings.checkpoint_dir):
        from benchmarks.workloads.catalogue import WORKLOADS
        from streams.driver import runner

        runner.LEASE_S = float(config.settings.get(LEASE_S, runner.LEASE_S))
        topology = WORKLOADS[config.workload].topology(config)
        runner.StreamsApplication(topology, settings, RestoreProgress(config.application_id, config.threads)).run()


if __name__ == "__main__":
    main()
