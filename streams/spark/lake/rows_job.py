"""What the readers of a lake sink's rows need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streams.logs.settings import LogSettings
from streams.model.row_layout import RowLayout


@dataclass(frozen=True)
class RowsJob:
    """How a sink's rows are read.

    Attributes:
        layout: The columns.
        client: Librdkafka client properties; excluded from `repr`.
        bulk_io: Use librdkafka's C API instead of the ordinary client.
        prefetch_bytes: How much a process may prefetch.
        logs: What the processes write to standard error.
        application_id: The application.
        sink: The sink's name.
    """

    layout: RowLayout
    client: Mapping[str, str] = field(repr=False)
    bulk_io: bool
    prefetch_bytes: int
    logs: LogSettings
    application_id: str
    sink: str
