"""`applyInPandasWithState`, grouped by key: the key's state is one pickled value.

python -m benchmarks.peers.spark.group_state CONFIG
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.peers.spark.keyed import PROGRAMS, Program, Step
from benchmarks.peers.spark.run import Run, main, results_of, rows_of

OUTPUT = "key string, value string"


def start(program: Program, run: Run, spark: SparkSession) -> None:
    """Starts the query of a program."""
    rows = program.rows(run, spark)
    has_watermark = "grace_ms" in run.parameters
    timeout = GroupStateTimeout.EventTimeTimeout if has_watermark else GroupStateTimeout.NoTimeout
    function = _function(program.step(run.parameters), has_watermark)
    results = rows.groupBy("key").applyInPandasWithState(function, OUTPUT, "state binary", program.mode, timeout)
    run.write(results, mode=program.mode)


def _function(step: Step, has_watermark: bool) -> Callable[[Any, Any, GroupState], Iterator[pd.DataFrame]]:
    def call(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        rows = [] if state.hasTimedOut else rows_of(frames)
        watermark = state.getCurrentWatermarkMs() if has_watermark else 0
        before = pickle.loads(state.get[0]) if state.exists else None
        answer = step(key[0], before, rows, watermark)
        if answer.state is not None:
            state.update((pickle.dumps(answer.state),))
            if answer.timer_ms is not None:
                state.setTimeoutTimestamp(max(answer.timer_ms, watermark + 1))
        elif state.exists:
            state.remove()
        yield results_of(answer.results)

    return call


if __name__ == "__main__":
    sys.exit(main({name: partial(start, program) for name, program in PROGRAMS.items()}, sys.argv[1:]))
