"""`process_values`: a user's processor that may not change the key (Kafka Streams: `FixedKeyProcessor`)."""

from __future__ import annotations

from streams.errors import TopologyError
from streams.model.record import Record
from streams.operators.operator_context import OperatorContext
from streams.operators.process.in_process import InProcess
from streams.operators.process.user_context import UserContext, checked_record
from streams.operators.process.user_processor import UserProcessor


class FixedKeyProcessor(UserProcessor):
    """Runs a processor and fails if it forwards a record under another key than that of the current record.

    Results therefore stay in the right partition, and no repartition is needed after the processor. During a punctuation there is
    no current record, and the processor chooses the keys: it should forward only keys that it has seen.
    """

    def context(self, ctx: OperatorContext, in_process: InProcess) -> UserContext:
        """The processor's context, which checks keys."""
        return _FixedKeyContext(ctx, in_process)


class _FixedKeyContext(UserContext):
    """A context that compares keys."""

    def forward(self, record: Record, child: str | None = None) -> None:
        """Forward, if the key is unchanged."""
        now = self._in_process.record
        record = checked_record(self.node, record, child, self._in_process.headers)
        if now is not None and record.key != now.key:
            raise TopologyError(
                f"The processor of '{self.node}' forwards the key {record.key!r} for a record with the key "
                f"{now.key!r}: process_values cannot change keys. Use process(...), which may."
            )
        self._ctx.forward(record, child)
