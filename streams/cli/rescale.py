"""`streams rescale`: moves an application's state to another number of tasks. `streams adopt`: makes a new checkpoint for it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from state.changelog import commits_topic
from state.kafka.admin import KafkaAdmin
from state.kafka.partitioner import Placement
from streams.application.adopt import Adopter, GivenPositions, described, lost_sinks
from streams.application.instances import while_stopped
from streams.application.prepare import plan_application
from streams.application.rescale.plan import Handling, UsersChoices
from streams.application.rescale.rescale import LiveRescale, SubRescale
from streams.application.start import Preflight, check_start
from streams.cli.command import command, option
from streams.cli.options import (
    ApplicationOptions,
    AsJson,
    DryRun,
    Target,
    Yes,
    check_no_question,
    live,
    open_checkpoint,
)
from streams.cli.output import print_json
from streams.cli.progress import RescaleProgress
from streams.errors import ConfigError
from streams.lake.commit import write_checkpoint


@command
def rescale(
    target: Target,
    *,
    application: ApplicationOptions,
    tasks: Annotated[int | None, option("The new number of tasks.", min=1, metavar="N")] = None,
    placement: Annotated[
        Placement | None,
        option("What gives keys to tasks: the function with which the topics are written.", metavar="FUNCTION"),
    ] = None,
    by_key: Annotated[
        list[str] | None,
        option("Rows of this processor's store are stored under the keys of their records.", metavar="STORE"),
    ] = None,
    drop: Annotated[
        list[str] | None, option("This store has no changelog, and its rows may be lost.", metavar="STORE")
    ] = None,
    state: Annotated[
        list[str] | None,
        option("What becomes of what this processor keeps in ctx.state in each task.", metavar="NODE=copy|drop"),
    ] = None,
    abort: Annotated[bool, option("Take back an unfinished rescale that has replaced nothing yet.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move an application's state to more or fewer tasks, beyond the number of partitions, too, or to another placement.

    Results and their order per key stay the same. The application must not be running.
    An interrupted rescale is finished by running it again; the old checkpoint is moved aside.
    """
    if tasks is None and placement is None:
        raise ConfigError("streams rescale needs the new number of tasks, --tasks N, or a --placement, or both")
    check_no_question(as_json, yes or dry_run, "add --dry-run, or --yes to rescale")
    choices = UsersChoices(frozenset(by_key or ()), _states(state or []), frozenset(drop or ()))
    topology, config = application.of(target)

    def say(text: str) -> None:
        typer.echo(text, err=as_json)

    with KafkaAdmin(config.client) as admin, open_checkpoint(config) as files, RescaleProgress() as progress:
        moved = LiveRescale(config, admin, files, progress)
        rescaler = moved.rescaler(topology, tasks, choices, placement)
        planned = [as_dict(sub) for sub in rescaler.subs]
        for sub in rescaler.subs:
            say(_line(sub))
        done = False
        if rescaler.waiting and not dry_run and (yes or _asked(abort)):
            commits = [commits_topic(config.application_id, sub.sub.name) for sub in rescaler.subs]
            with while_stopped(config, admin, commits):
                rescaler.abort() if abort else rescaler.run()
            done = True
            if not abort:
                moved.forget_local_state(max(sub.new for sub in rescaler.subs), say)
                say(_done(tasks, placement))
        elif rescaler.waiting and not abort:
            rescaler.check()
        if as_json:
            print_json(
                {
                    "application_id": config.application_id,
                    "tasks": tasks,
                    "placement": placement,
                    "done": done,
                    "sub_topologies": planned,
                }
            )


def as_dict(sub: SubRescale) -> dict[str, Any]:
    """A sub-topology for programs; `phase` is that of an unfinished rescale, or null."""
    return {
        "name": sub.sub.name,
        "from": sub.old,
        "to": sub.new,
        "placement_from": sub.before.value,
        "placement_to": sub.then.value,
        "stores": [name for name, node in sub.sub.stores.items() if node.spec.logged],
        "phase": sub.phase.value if sub.phase else None,
    }


def _line(sub: SubRescale) -> str:
    if not sub.needed:
        return f"{sub.sub.name}: has {sub.new} tasks by {sub.then.value}, or has never run: nothing to do"
    stores = ", ".join(name for name, node in sub.sub.stores.items() if node.spec.logged) or "no stores"
    phase = f"; begun already, and continues ({sub.phase.value})" if sub.phase else ""
    placed = "" if sub.before is sub.then else f", from {sub.before.value} to {sub.then.value}"
    return f"{sub.sub.name}: from {sub.old} to {sub.new} tasks{placed} ({stores}){phase}"


def _done(tasks: int | None, placement: Placement | None) -> str:
    asked = {"tasks": tasks, "placement": None if placement is None else placement.value}
    settings = " and ".join(f"{name}={value}" for name, value in asked.items() if value is not None)
    return f"done: start the application with {settings}, or without this setting"


def _asked(abort: bool) -> bool:
    question = "Take the unfinished rescale back?" if abort else "The application must not run now. Move its state?"
    return typer.confirm(question, abort=True)


def _states(texts: list[str]) -> dict[str, Handling]:
    found: dict[str, Handling] = {}
    for text in texts:
        node, _, handling = text.partition("=")
        if not node or handling not in ("copy", "drop"):
            raise ConfigError(f"--state {text}: NODE=copy or NODE=drop is needed")
        found[node] = "copy" if handling == "copy" else "drop"
    return found


@command
def adopt(
    target: Target,
    *,
    application: ApplicationOptions,
    position: Annotated[
        list[str] | None,
        option(
            "Where reading continues if no offset is committed; or TOPIC=earliest, TOPIC=latest.",
            metavar="TOPIC:PARTITION=OFFSET",
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Create a new checkpoint from an application's commits, if its own is lost, damaged or rolled back.

    No record is lost or processed twice. The old checkpoint is moved aside. That of a foreach_batch sink is made again if it is
    missing. Refused while the application runs.
    """
    topology, config = application.of(target)
    given = GivenPositions.parse(position or ())
    with KafkaAdmin(config.client) as admin, open_checkpoint(config) as files:
        planned = plan_application(topology, config, admin)
        check_start(planned, admin, live(config))
        adopter = Adopter(Preflight(planned, files, admin, typer.echo), given)
        misfits, sinks = adopter.misfits(), lost_sinks(planned, files, admin)
        if not misfits and not sinks:
            typer.echo(f"The checkpoint {config.checkpoint_dir} fits: there is nothing to do.")
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
        commits = [commits_topic(config.application_id, prepared.sub.name) for prepared in planned.subs]
        with while_stopped(config, admin, commits):
            for prepared, findings in misfits:
                adopter.adopt(prepared, findings)
            for name, note in sinks.items():
                write_checkpoint(files, name, note)
