"""The columns that leave a source of a reader: behind the operators that work on columns, with their keys, for each entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import pyarrow as pa

from streams.runtime.handlers import Stage
from streams.runtime.reader.column_steps import Columns, Failure, run_steps, without
from streams.runtime.reader.new_keys import written_keys
from streams.runtime.step_context import SourceRows, StepContext
from streams.topology.plan import SubTopology
from streams.topology.planning.task_input import TaskInput


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """What leaves a source through one entry.

    Attributes:
        columns: The fields and the records.
        keys: The new keys; None: the records' own.
    """

    columns: Columns
    keys: pa.DictionaryArray | None


class ColumnReader:
    """Runs the operators on columns behind a source, and writes new keys.

    Args:
        sub: The sub-topology.
        source: The source's name.
        entries: The entries whose rows come from the source directly or as columns.
        run: Policies and counters.
    """

    def __init__(self, sub: SubTopology, source: str, entries: Sequence[TaskInput], run: StepContext) -> None:
        self._source = source
        self._steps = [step for step in sub.columns.steps if step.source == source]
        self._entries = entries
        self._run = run

    def read(self, rows: SourceRows, columns: Columns, rejected: Mapping[int, Exception]) -> dict[int, EntryColumns]:
        """The columns by the index of the entry. All errors are handled, in the order of the records.

        Args:
            rows: The records as read.
            columns: Their fields.
            rejected: Records that cannot be read, with their errors.
        """
        behind, failures = run_steps(self._steps, self._source, columns, self._run.counters)
        found = {entry.index: self._of_entry(entry, behind[entry.from_node], rows, failures) for entry in self._entries}
        failed: list[tuple[int, Stage, str, Exception]]
        failed = [(row, "deserialization", self._source, error) for row, error in rejected.items()]
        failed += [(row, "processing", node, error) for row, _, node, error in sorted(failures, key=itemgetter(0, 1))]
        for row, stage, node, error in sorted(failed, key=itemgetter(0)):
            self._run.handlers.handle(stage, node, rows.origin(row), error)
        return found

    def _of_entry(self, entry: TaskInput, columns: Columns, rows: SourceRows, failures: list[Failure]) -> EntryColumns:
        if columns.keys is None:
            return EntryColumns(columns, None)
        failed: dict[int, Exception] = {}
        keys = written_keys(columns.keys, columns.rows, entry.key_serde, rows.topic, failed)
        position = len(self._steps) + entry.index
        failures += (Failure(row, position, entry.node, error) for row, error in failed.items())
        return EntryColumns(replace(columns, rows=without(columns.rows, failed)), keys)
