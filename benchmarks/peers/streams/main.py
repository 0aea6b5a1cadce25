"""Runs a workload's topology by the engine until SIGTERM: `python -m benchmarks.peers.streams.main CONFIG.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.workloads.base import RunConfig
from benchmarks.workloads.catalogue import WORKLOADS
from streams import KafkaStreams
from streams.config import StreamsConfig, load_config


def settings_of(config: RunConfig) -> StreamsConfig:
    """The engine's settings for a run: its defaults, apart from places and what `--set` says."""
    given = dict(config.settings)
    spark = {name: given.pop(name) for name in list(given) if name.startswith("spark.")}
    options: dict[str, Any] = {
        "application_id": config.application_id,
        "bootstrap_servers": config.bootstrap_servers,
        "base_dir": Path(config.state_dir),
        "spark": {"spark.ui.enabled": "false", **spark},
        **given,
    }
    return load_config(None, options)


def main() -> None:
    """Runs until SIGTERM."""
    # The workers import the workloads' functions.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    config = RunConfig(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    KafkaStreams(WORKLOADS[config.workload].topology(config), settings_of(config)).run()


if __name__ == "__main__":
    main()
