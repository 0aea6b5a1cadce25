"""`streams adopt`: a new checkpoint for the state that an application has in Kafka."""

from __future__ import annotations

from typing import Annotated

import typer

from state.changelog.topics import commits_topic
from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from streams.application.adopt import Adopter, GivenPositions, described, lost_sinks
from streams.application.instances import while_stopped
from streams.application.prepare import plan_application
from streams.application.start import Preflight, check_start
from streams.cli.command import command
from streams.cli.operations.checkpoints import open_checkpoint
from streams.cli.settings import ApplicationOptions, Target, reachable
from streams.cli.target import TopologyTarget
from streams.lake.commit import write_checkpoint

Positions = Annotated[
    list[str] | None,
    typer.Option(
        "--position",
        metavar="TOPIC:PARTITION=OFFSET",
        help="Where reading continues if no offset is committed; or TOPIC=earliest, TOPIC=latest.",
    ),
]


@command
def adopt(
    target: Target,
    *,
    application: ApplicationOptions,
    position: Positions = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and end.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Create a new checkpoint from an application's commits, if its own is lost, damaged or rolled back.

    No record is lost or processed twice. The old checkpoint is moved aside. That of a foreach_batch sink is made again if it is
    missing. Refused while the application runs.
    """
    program = TopologyTarget.parse(target)
    effective = reachable(application.load(program.application_id()))
    topology = program.load()
    given = GivenPositions.parse(position or ())
    with KafkaAdmin(effective.client) as admin, open_checkpoint(effective) as files:
        planned = plan_application(topology, effective, admin)
        log = LiveKafka(effective.client, effective.transaction_timeout_ms, bulk=effective.bulk_io)
        check_start(planned, admin, log)
        adopter = Adopter(Preflight(planned, files, admin, typer.echo), given)
        misfits, sinks = adopter.misfits(), lost_sinks(planned, files, admin)
        if not misfits and not sinks:
            typer.echo(f"The checkpoint {effective.checkpoint_dir} fits: there is nothing to do.")
            return
        for prepared, findings in misfits:
            typer.echo(findings.wrong)
            for what, which in described(adopter.plan(prepared, findings), prepared.tasks).items():
                typer.echo(f"  {what}: {which}")
        for name, note in sinks.items():
            typer.echo(
                f"{name}: its checkpoint is missing; a new one continues behind batch {note.batch}, or repeats it"
            )
        if dry_run:
            return
        if not yes:
            typer.confirm("The application must not run now. Make a new checkpoint?", abort=True)
        commits = [commits_topic(effective.application_id, prepared.sub.name) for prepared in planned.subs]
        with while_stopped(effective, admin, commits):
            for prepared, findings in misfits:
                adopter.adopt(prepared, findings)
            for name, note in sinks.items():
                write_checkpoint(files, name, note)
