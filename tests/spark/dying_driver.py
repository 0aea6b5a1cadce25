"""`tests.spark.apps:blocks` in a driver that dies by SIGKILL once it has the reports of all tasks, before Spark's commit log.

Spark calls `foreachBatch` between the two: nothing else shows that moment so surely.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path

from streams.config import Execution, StreamsConfig
from streams.driver.progress import Progress
from streams.driver.runner import StreamsApplication
from streams.metrics.application import StepFigures
from tests.spark.apps import blocks


class DyingProgress(Progress):
    """Ends driver and JVM, which share a process group."""

    def step(self, sub: str, batch_id: int, steps: Collection[StepFigures]) -> None:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    application_id, servers, folder = sys.argv[1:]
    spark = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}
    config = StreamsConfig(
        application_id=application_id,
        bootstrap_servers=servers,
        base_dir=Path(folder),
        tasks=2,
        spark=spark,
        execution=Execution.MICRO_BATCH,
    )
    StreamsApplication(blocks(), config, DyingProgress(application_id)).run()
