"""`streams doctor`: what is wrong with an application, and which command mends it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console

from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from streams.application.doctor.examine import examine
from streams.application.doctor.inspection import CheckResult, Finding, Inspection, Severity, worst
from streams.broker.errors import BrokerError
from streams.cli.command import NOT_SAFE, command
from streams.cli.operations.checkpoints import open_checkpoint
from streams.cli.operations.transactions import JavaRequests
from streams.cli.output import print_json, visible
from streams.cli.settings import ApplicationOptions, AsJson, Target, reachable
from streams.cli.target import TopologyTarget
from streams.cluster.survey import Survey
from streams.errors import ConfigError
from streams.wording import counted

_COLOURS = {
    Severity.OK: "green",
    Severity.NOTE: "cyan",
    Severity.WARNING: "yellow",
    Severity.ERROR: "red",
}
_EXIT = {Severity.OK: 0, Severity.NOTE: 0, Severity.WARNING: NOT_SAFE, Severity.ERROR: 1}


@command
def doctor(target: Target, *, application: ApplicationOptions, as_json: AsJson = False) -> None:
    """Compare an application's checkpoint, commits, changelogs, local state and consumer group, and say what is wrong.

    Nothing is changed, and the application may run. Each finding names its place and the command that mends it. Local state is
    that of this host. Exit code 0: healthy, or notes only; 3: warnings; 1: errors, with which a start fails or loses data.
    """
    named = TopologyTarget.parse(target)
    config = reachable(application.load(named.application_id()))
    topology = named.load()
    kafka = LiveKafka(config.client, config.transaction_timeout_ms, bulk=config.bulk_io)
    with KafkaAdmin(config.client) as admin, open_checkpoint(config) as files, JavaRequests(config.client) as java:

        def transactions() -> Any:
            # Without Java or jars, the doctor says that this part was not looked at.
            with suppress(BrokerError, ConfigError):
                return java.admin
            return None

        inspection = Inspection(topology, config, target, files, admin, Survey(config.client), kafka, transactions)
        results = _shown(examine(inspection), as_json)
    verdict = worst(results)
    if as_json:
        print_json(as_dict(config.application_id, results))
    else:
        found = [finding for result in results for finding in result.findings if finding.severity is not Severity.OK]
        Console().print(
            f"{config.application_id}: {'healthy' if not found else counted(len(found), 'finding')}", highlight=False
        )
    if _EXIT[verdict]:
        raise typer.Exit(_EXIT[verdict])


def _shown(results: Iterable[CheckResult], as_json: bool) -> list[CheckResult]:
    """The results, each printed as soon as it is there."""
    found = []
    for result in results:
        found.append(result)
        for finding in () if as_json else result.findings:
            _print(result.check, finding)
    return found


def _print(check: str, finding: Finding) -> None:
    console = Console()
    console.print(f"[{_COLOURS[finding.severity]}]{finding.severity.value:>7}[/]  ", end="")
    place = str(finding.place)
    text = f"{check}: {place and f'{place}: '}{finding.says}{'' if finding.says.endswith('.') else '.'}"
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)
    if finding.command:
        console.print(visible(f"{'':9}-> {finding.command}"), markup=False, highlight=False, soft_wrap=True)


def as_dict(application_id: str, results: Iterable[CheckResult]) -> dict[str, Any]:
    results = list(results)
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
