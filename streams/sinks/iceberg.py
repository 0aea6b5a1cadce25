"""`IcebergSink`: an Iceberg table. The position is a property of the snapshot that has the rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streams.errors import ConfigError, LakeConflictError, LakePositionError, LakeSchemaError, SinkUnavailableError
from streams.sinks.sink import SinkTable

if TYPE_CHECKING:
    import pyarrow as pa

_PROPERTY = "streams-on-spark.position."
"""The prefix of the name of the property with a position; the owner's name follows."""
TRIES = 6
FIRST_PAUSE_S = 0.5


class IcebergSink:
    """A table of an Iceberg catalog (the extra `iceberg`). A missing table and its namespace are created with the first rows.

    Each commit is one metadata update. It succeeds only if the table is still at the snapshot that was read, which has the position
    of this sink. If another writer of the table was faster, the batch is tried again on that writer's snapshot.

    Args:
        catalog: The catalog's name, as in `.pyiceberg.yaml`.
        table: `namespace.table`.
        properties: Properties of the catalog, such as `{"type": "rest", "uri": "http://..."}`, in addition to those in
            `.pyiceberg.yaml`.
        table_properties: Properties of a new table.
    """

    def __init__(
        self,
        catalog: str,
        table: str,
        properties: Mapping[str, str] | None = None,
        table_properties: Mapping[str, str] | None = None,
    ) -> None:
        self._catalog_name, self._name = catalog, table
        self._properties, self._table_properties = dict(properties or {}), dict(table_properties or {})
        self._pause: Callable[[float], object] = time.sleep
        self.target = f"iceberg table {table} of {catalog}"

    def open(self, table: SinkTable) -> str | None:
        """Loads the table, and returns the position of the last commit, as `Sink.open` describes."""
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise ConfigError(
                "IcebergSink needs PyIceberg: pip install 'streams-on-spark[iceberg]', on the driver."
            ) from error
        self._wanted = table
        with self._explained():
            self._catalog = load_catalog(self._catalog_name, **self._properties)
            found = self._found()
        if found is None:
            return None
        self._check(found)
        return self._position(found)

    def write(self, rows: pa.Table, deleted: pa.Table) -> None:
        """Keeps the batch. Its files are written with the commit, like the snapshot's properties."""
        self._rows, self._deleted = rows, deleted

    def commit(self, position: str, after: str | None) -> None:
        """Commits the batch with its position, as `Sink.commit` describes."""
        from pyiceberg.exceptions import CommitFailedException

        with self._explained():
            for tried in range(TRIES):
                if tried:
                    self._pause(FIRST_PAUSE_S * 2 ** (tried - 1))
                try:
                    return self._commit(position, after)
                except CommitFailedException as error:
                    conflict = error
        raise LakeConflictError(
            f"{self._wanted.owner}: other writers of the {self.target} were faster {TRIES} times in a row, the last time with: "
            f"{conflict}. Nothing is lost: the rows wait in the sink's internal topic. Start the application again once the "
            f"others write less."
        )

    def close(self) -> None:
        """Does nothing, because nothing is open."""

    def _commit(self, position: str, after: str | None) -> None:
        """Commits on the newest snapshot if this has the expected position; raises PyIceberg's errors."""
        table = self._found()
        if table is None and after is not None:
            raise LakePositionError(
                f"{self._wanted.owner}: the {self.target} was dropped while the application ran. Nothing was written, and the rows "
                f"of this batch wait in the sink's internal topic. Put the table back, then start again."
            )
        if table is None:
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            table = self._catalog.create_table_if_not_exists(
                self._name, self._wanted.schema, properties=self._table_properties
            )
        if self._position(table) != after:
            raise self._wanted.conflict()
        # PyIceberg would retry a failed commit on the next snapshot, without looking at its position.
        alone = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        table.metadata = table.metadata.model_copy(update={"properties": alone})
        name = _PROPERTY + self._wanted.owner
        kept = {name: position}
        with table.transaction() as transaction:
            transaction.set_properties({name: f"{table.metadata.last_sequence_number} {position}"})
            self._delete(transaction, kept)
            transaction.append(self._rows, snapshot_properties=kept)

    def _delete(self, transaction: Any, kept: dict[str, str]) -> None:
        """Deletes the existing rows of the batch's keys. The batch then writes new rows for keys that remain."""
        from pyiceberg.table.upsert_util import create_match_filter

        keys = list(self._wanted.keys)
        if not keys:
            return
        import pyarrow as pa

        changed = pa.concat_tables([self._rows.select(keys), self._deleted.select(keys)])
        if not changed.num_rows or transaction.table_metadata.current_snapshot() is None:
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            transaction.delete(create_match_filter(changed, keys), snapshot_properties=kept)

    def _found(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None

    def _position(self, table: Any) -> str | None:
        """The position in the newest snapshot that has one, or if that has expired, the position in the table's properties."""
        name = _PROPERTY + self._wanted.owner
        current = oldest = snapshot = table.current_snapshot()
        while snapshot is not None:
            found = snapshot.summary and snapshot.summary.additional_properties.get(name)
            if found:
                return str(found)
            oldest = snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        before, _, kept = table.properties.get(name, "").partition(" ")
        # Properties do not go back with a table. They count where the table's first snapshot is gone and no earlier one is current.
        if kept and oldest is not None and oldest.sequence_number > 1 and current.sequence_number > int(before):
            return str(kept)
        return None

    def _check(self, table: Any) -> None:
        missing = sorted({*self._wanted.schema.names} - {field.name for field in table.schema().fields})
        if missing:
            raise LakeSchemaError(
                f"{self._wanted.owner}: the {self.target} has no column {', '.join(missing)}. Nothing was written. Add what is "
                f"missing (table.update_schema()), leave columns out with schema=..., key=None or timestamp=None, or write a new "
                f"table."
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        from pyiceberg import exceptions
        from requests import RequestException

        away = (
            RequestException,
            ConnectionError,
            exceptions.ServerError,
            exceptions.ServiceUnavailableError,
            exceptions.CommitStateUnknownException,
        )
        try:
            yield
        except away as error:
            raise SinkUnavailableError(
                f"{self._wanted.owner}: the catalog of the {self.target} does not answer: {error}. The rows of this batch wait in "
                f"the sink's internal topic. The sink is opened again until it answers, and sees then whether they were written."
            ) from error
        except ValueError as error:  # PyIceberg's error for rows of another schema
            raise LakeSchemaError(
                f"{self._wanted.owner}: the {self.target} does not take this batch: {' '.join(str(error).split())}. Nothing of it "
                f"was written, and its rows wait in the sink's internal topic. Let the table take them, then start again."
            ) from error
