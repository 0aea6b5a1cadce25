"""The list of checks, and the examination, which runs them all and changes nothing.

To add a check (of replicas, say), write a function of the `Inspection` that yields its findings, and add a row to `CHECKS` with the
sentence for no findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from state.errors import KafkaClientError, StreamsError
from streams.application.doctor import cluster, program, state
from streams.application.doctor.inspection import CheckResult, Finding, Inspection, Severity, worst

_ATTEMPTS = 10


@dataclass(frozen=True)
class Check:
    """One check."""

    name: str
    healthy: str
    look: Callable[[Inspection], Iterable[Finding]]


BROKERS = Check("brokers", "their settings allow exactly-once", cluster.brokers)
PLAN = Check("program", "it can be planned on this cluster", program.plan)
START = Check("start", "the program may continue with the state", program.start)
CHECKS = (
    START,
    Check("pauses", "nothing is paused", program.pauses),
    Check("execution", "it is the one in the settings", program.execution),
    Check("internal topics", "all have the right partitions and settings", cluster.internal_topics),
    Check("output topics", "all exist", cluster.outputs),
    Check("fields", "the fields that are read by name exist in the newest records", program.fields),
    Check("joins", "the keys of both sides have the same format", program.joins),
    Check("matches", "records find matches", program.matches),
    Check("left-over topics", "there are none", cluster.left_over),
    Check("replicas", "every topic can be written, and outlives a broker", cluster.replicas),
    Check("checkpoint", "it fits the commit markers of all tasks", state.checkpoint),
    Check("micro-batch", "no micro-batch is half committed", state.half_committed),
    Check("changelogs", "they have all that the markers promise", state.changelogs),
    Check("positions", "all offsets to read next are in the logs", program.positions),
    Check("retention", "no unread record is about to be deleted", program.retention),
    Check("consumer group", "its offsets are those of the markers", program.group),
    Check("transactions", "none holds up readers", cluster.transactions),
    Check("drivers", "at most one driver is running", cluster.drivers),
    Check("disk", "the state folder has room, and is this user's", state.disk),
    Check("local state", "what is on this host comes from this application's commits", state.stores),
    Check("snapshots", "the ones that exist can be restored", state.snapshots),
)
"""The checks of a planned program, in their order."""


def examine(inspection: Inspection) -> Iterator[CheckResult]:
    """Runs all checks.

    A check that fails itself is a finding, too: the others are still run. If the program cannot be planned, nothing can be compared
    with it, and the other checks are left out. They are also left out while a reset or a rescale is unfinished: topics and markers
    are then in an intermediate state, and the usual fixes (an adoption, deleting its copies) would lose state.
    """
    yield _result(inspection, BROKERS)
    planned = _result(inspection, PLAN)
    yield planned
    if planned.findings[0].severity is Severity.OK:
        for check in CHECKS:
            yield _result(inspection, check)
            if check is START and program.under_way(inspection):
                return


def _result(inspection: Inspection, check: Check) -> CheckResult:
    return CheckResult(check.name, _findings(inspection, check) or (Finding(Severity.OK, check.healthy),))


def _findings(inspection: Inspection, check: Check) -> tuple[Finding, ...]:
    """The findings of a check. It is repeated for a while if brokers cannot answer yet, such as a coordinator being loaded."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return tuple(check.look(inspection))
        except StreamsError as error:
            if attempt == _ATTEMPTS or not (isinstance(error, KafkaClientError) and error.transient):
                return (Finding(Severity.WARNING, f"this could not be checked: {error}"),)
        inspection.pause()
    raise AssertionError("the last attempt returns")


def findings(application_id: str, results: Sequence[CheckResult]) -> dict[str, Any]:
    """The results as JSON data."""
    return {
        "application_id": application_id,
        "verdict": worst(results).value,
        "findings": [
            {
                "check": result.check,
                "severity": finding.severity.value,
                "says": finding.says,
                "command": finding.command,
                **asdict(finding.place),
            }
            for result in results
            for finding in result.findings
        ],
    }
