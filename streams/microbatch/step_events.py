"""Events of a step, for the report that goes from the worker to the driver: plain data, since the report is JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from state.commit.decide import TaskIdentity
from state.errors import FencedError
from state.restore.listener import RestoreReport, StoreReport
from state.restore.plan import Action
from streams.logs.errors import error_fields
from streams.logs.events import Events
from streams.logs.kinds import ATTEMPT_FAILED, FENCED, RESTORED, RETRIED, EventKind


def step_events(attempt: int, batch_id: int, restored: RestoreReport | None) -> list[Mapping[str, Any]]:
    """The events of a step that has reached its end; most steps have none."""
    return [*_restored(restored), *_retried(attempt, batch_id)]


def log_failed_attempt(identity: TaskIdentity, attempt: int, batch_id: int, error: Exception) -> None:
    """Logs that an attempt has failed: it has no report, and Spark tells its reason only if the last attempt fails, too."""
    fenced = isinstance(error, FencedError)
    ids = {"transactional_id": identity.transactional_id} if fenced else {}
    Events(identity.application_id).emit(
        FENCED if fenced else ATTEMPT_FAILED,
        f"attempt {attempt + 1} of {identity} {'was fenced' if fenced else 'has failed'}: {error}",
        identity.sub_topology,
        identity.task,
        **ids,
        attempt=attempt + 1,
        batch_id=batch_id,
        error=error_fields(error),
    )


def _restored(report: RestoreReport | None) -> Iterator[Mapping[str, Any]]:
    if report is None:
        return
    restored = [store for store in report.stores if store.action is not Action.NOTHING]
    if not restored and not report.copy:
        return
    rows, source = sum(store.rows for store in report.stores), report.copy or "changelog"
    yield _event(
        RESTORED,
        f"task {report.task} has restored {rows:,} rows from {source} ({report.records:,} changelog records) in "
        f"{report.seconds:.1f} s{_why(restored)}",
        source=source,
        stores={store.store: store.action.value for store in restored},
        reasons={store.store: store.reason for store in restored},
        records=report.records,
        rows=rows,
        bytes=report.bytes,
        seconds=round(report.seconds, 3),
    )


def _why(restored: Sequence[StoreReport]) -> str:
    """Why stores were read from the start; empty if none was."""
    reasons = dict.fromkeys(store.reason for store in restored if store.action is Action.FROM_START)
    return f" from the start: {'; '.join(reasons)}" if reasons else ""


def _retried(attempt: int, batch_id: int) -> Iterator[Mapping[str, Any]]:
    if attempt > 0:
        yield _event(
            RETRIED,
            f"micro-batch {batch_id} needed attempt {attempt + 1} of this task: see the workers' log lines before",
            attempt=attempt + 1,
            batch_id=batch_id,
        )


def _event(kind: EventKind, message: str, **fields: Any) -> Mapping[str, Any]:
    return {"event": kind.name, "message": message, "fields": fields}
