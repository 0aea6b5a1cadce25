"""`streams doctor`: what is wrong, and which command fixes it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from streams.cli.command import NOT_SAFE, command
from streams.cli.options import (
    ApplicationOptions,
    AsJson,
    Target,
    live,
    open_checkpoint,
)
from streams.cli.output import print_finding, print_json, print_line, visible
from streams.errors import BrokerError, ConfigError
from streams.wording import counted

if TYPE_CHECKING:
    from streams.application.doctor.inspection import CheckResult

_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
_EXIT = {"ok": 0, "note": 0, "warning": NOT_SAFE, "error": 1}
"""The exit code for each value of a `Severity`."""


@command
def doctor(target: Target, *, application: ApplicationOptions, as_json: AsJson = False) -> None:
    """Compare an application's checkpoint, commits, changelogs, local state and consumer group, and report what is wrong.

    Nothing is changed, and the application may run. Each finding names its place and the command that fixes it. It looks at
    the local state of this host. Exit code 0: healthy, or notes only; 3: warnings; 1: errors, which make a start fail or lose
    data.
    """
    topology, config = application.of(target)
    # The checks are those of a start, and need the planner: a wrong command line or program is reported before they are imported.
    from state.kafka.admin import KafkaAdmin
    from streams.application.doctor.examine import examine, findings
    from streams.application.doctor.inspection import Inspection, Severity, worst
    from streams.cli.inspection.transactions import JavaRequests
    from streams.cluster.admin import Survey

    with KafkaAdmin(config.client) as admin, open_checkpoint(config) as files, JavaRequests(config.client) as java:

        def transactions() -> Any:
            # Without Java or jars, the doctor says that this part was not looked at.
            with suppress(BrokerError, ConfigError):
                return java.admin
            return None

        inspection = Inspection(
            topology, config, target, files, admin, Survey(config.client), live(config), transactions
        )
        results = _shown(examine(inspection), as_json)
    verdict = worst(results)
    if as_json:
        print_json(findings(config.application_id, results))
    else:
        found = [finding for result in results for finding in result.findings if finding.severity is not Severity.OK]
        verdict_text = counted(len(found), "finding") if found else "healthy"
        Console().print(f"{config.application_id}: {verdict_text}", highlight=False)
    if _EXIT[verdict.value]:
        raise typer.Exit(_EXIT[verdict.value])


def _shown(results: Iterable[CheckResult], as_json: bool) -> list[CheckResult]:
    """The results. Each is printed as soon as it is known."""
    shown = []
    for result in results:
        shown.append(result)
        for one in () if as_json else result.findings:
            place = str(one.place)
            text = f"{result.check}: {place and f'{place}: '}{one.says}{'' if one.says.endswith('.') else '.'}"
            print_finding(one.severity.value, _COLOURS[one.severity.value], visible(text))
            if one.command:
                print_line(visible(f"{'':9}-> {one.command}"), Console())
    return shown
