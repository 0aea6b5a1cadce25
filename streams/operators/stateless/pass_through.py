"""`merge`, and the joints of other operators (Kafka Streams: `PassThrough`)."""

from __future__ import annotations

from streams.model.record import Record
from streams.operators.operator import Operator


class PassThrough(Operator):
    """Forwards every record of every parent as it is."""

    def process(self, record: Record) -> None:
        """No change."""
        self.ctx.forward(record)
