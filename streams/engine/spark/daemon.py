"""A faster Python daemon for Spark (`spark.python.daemon.module`).

Each Python task calls `importlib.invalidate_caches()`, which rereads the directory of every zip and jar on `sys.path`:
25 ms for spark-core.jar, 6 ms for pyspark.zip, several times that under load; with small batches that was 75 % of a
worker's busy time. In addition, each new worker would import pyarrow, pandas and numba (more than a second) and compile
the engine's kernels. The daemon does all of this once, before it forks.

The daemon then freezes its heap, because Spark runs `gc.collect()` after every task, which would otherwise walk all those modules.
Within a step, the collector would walk the step's objects after every few hundred new ones, which took half of the CPU time of an
aggregation with functions. Few of them are in reference cycles, so it runs seldom; live slots also run it by the bytes that they
have processed (`streams/engine/live/slot.py`). No thread may exist before the fork, so no Kafka client is created here. Nothing of
pyspark may be imported above `drop_archives`.
"""

from __future__ import annotations

import gc
import importlib.util
import sys

from streams.engine.spark.daemon_ahead import ARGUMENT, become_daemon, hand_over
from streams.engine.spark.startup.sitecustomize import drop_own_archives

YOUNG_OBJECTS = 50_000
"""After this many new container objects, the collector looks for reference cycles among them (Python's default: 700)."""


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

    The garbage collector is off until then: it would walk all modules again and again, which takes a sixth of the CPU.
    """
    gc.disable()
    try:
        import pandas  # noqa: F401
        import pyarrow.json  # noqa: F401
        import pyspark.worker  # noqa: F401

        import streams.engine.spark.worker  # noqa: F401
        from streams.engine.spark.warm_up import warm_up

        warm_up()
        # No collection before the freeze: it would take a twelfth of the whole time, and free 4,000 of 320,000 objects.
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
    finally:
        gc.enable()


def main() -> None:
    """Runs the daemon of Spark's workers, or hands over to one that was started ahead."""
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
