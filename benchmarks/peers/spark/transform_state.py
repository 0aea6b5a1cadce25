"""`transformWithStateInPandas`: the key's state is one pickled value, and timers are those of the API.

python -m benchmarks.peers.spark.transform_state CONFIG
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.peers.spark.keyed import PROGRAMS, Program, Step
from benchmarks.peers.spark.run import Run, main, results_of, rows_of

OUTPUT = "key string, value string"


class Processor(StatefulProcessor):
    """Runs a step for each key."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state: one value for each key."""
        self._handle = handle
        self._state = handle.getValueState("state", "state binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """New rows of a key."""
        yield self._call(key[0], rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """A key's timer."""
        yield self._call(key[0], iter(()), timerValues)

    def _call(self, key: str, frames: Iterator[pd.DataFrame], times: Any) -> pd.DataFrame:
        watermark = max(times.getCurrentWatermarkInMs(), 0)
        stored = self._state.get()
        answer = self._step(key, None if stored is None else pickle.loads(stored[0]), rows_of(frames), watermark)
        if answer.state is not None:
            self._state.update((pickle.dumps(answer.state),))
            if answer.timer_ms is not None:
                self._set_timer(answer.timer_ms)
        elif stored is not None:
            self._state.clear()
        return results_of(answer.results)

    def _set_timer(self, at_ms: int) -> None:
        """Keeps one timer: the next one that is due is registered when this one has expired."""
        if not list(self._handle.listTimers()):
            self._handle.registerTimer(at_ms)


def start(program: Program, run: Run, spark: SparkSession) -> None:
    """Starts the query of a program."""
    rows = program.rows(run, spark)
    times = "EventTime" if "grace_ms" in run.parameters else "None"
    processor = Processor(program.step(run.parameters))
    results = rows.groupBy("key").transformWithStateInPandas(processor, OUTPUT, program.mode, times)
    run.write(results, mode=program.mode)


if __name__ == "__main__":
    sys.exit(main({name: partial(start, program) for name, program in PROGRAMS.items()}, sys.argv[1:]))
