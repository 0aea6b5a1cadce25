"""A faster Python daemon for Spark (`spark.python.daemon.module`).

Each Python task calls `importlib.invalidate_caches()`, which rereads the directory of every zip and jar on `sys.path`:
25 ms for spark-core.jar, 6 ms for pyspark.zip, several times that under load; with small batches that was 75 % of a
worker's busy time. In addition, each new worker would import pyarrow, pandas and numba (more than a second) and compile
the engine's kernels. The daemon does all of this once, before it forks.

The daemon then freezes its heap: Spark runs `gc.collect()` after every task, which would otherwise walk all those modules. Within
a step, the collector would walk all of its objects each time that some hundred have come: half of the CPU of an aggregation by
functions. Hardly any of them stand in circles, so it looks seldom.
No thread may exist before the fork, so no Kafka client is created here. Nothing of pyspark may be imported above `drop_archives`.
"""

from __future__ import annotations

import gc
import importlib.util
import sys

from streams.engine.spark.daemon_ahead import ARGUMENT, become_daemon, hand_over
from streams.engine.spark.startup.sitecustomize import drop_own_archives

YOUNG_OBJECTS = 50_000
"""After so many new objects that hold others, the collector looks for circles among them (Python's default: 700)."""


def drop_archives() -> None:
    """Removes zips and jars from `sys.path`, except the one of another Spark that pyspark is imported from.

    On a cluster, executors do not get the driver's PYTHONPATH, so `sitecustomize` has not run there.
    """
    sys.path[:] = drop_own_archives(sys.path)
    spec = importlib.util.find_spec("pyspark")
    origin = (spec.origin or "") if spec else ""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar")) or origin.startswith(entry)]


def preload() -> None:
    """Imports what every worker needs and compiles the kernels.

    The collector waits: it would look through all modules again and again while they are made, a sixth of the CPU.
    """
    gc.disable()
    try:
        import pandas  # noqa: F401
        import pyarrow.json  # noqa: F401
        import pyspark.worker  # noqa: F401

        import streams.engine.spark.worker  # noqa: F401
        from streams.engine.spark.warm_up import warm_up

        warm_up()
        # Not collected before: a collection takes a twelfth of all this, and of 320,000 objects it would free 4,000.
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
    finally:
        gc.enable()


def main() -> None:
    """Runs the daemon of Spark's workers, unless one that was started ahead does."""
    drop_archives()
    if sys.argv[1:2] == [ARGUMENT]:
        if not become_daemon(int(sys.argv[2]), preload):
            return
    elif hand_over():
        return
    else:
        preload()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
