"""`streams rescale`: moves state to other tasks, another placement or plan. `streams adopt`: makes a new checkpoint for state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from state.changelog import commits_topic
from state.kafka.admin import KafkaAdmin
from state.kafka.placement import Placement
from streams.application.adopt import Adopter, GivenPositions, described, lost_sinks
from streams.application.instances import while_stopped
from streams.application.prepare import plan_application
from streams.application.rescale.cluster import LiveRescale
from streams.application.rescale.plan import Handling, UsersChoices
from streams.application.rescale.replan import Replan
from streams.application.rescale.rescale import SubRescale
from streams.application.start import Preflight, check_start
from streams.cli.command import OptionGroup, command, option
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
from streams.cli.progress import RestoreProgress
from streams.errors import ConfigError
from streams.lake.commit import write_checkpoint
from streams.topology.plan import SubTopology
from streams.wording import counted

PlacedBy = Annotated[
    Placement | None,
    option("How keys are assigned to tasks: the partitioner with which the topics are written.", metavar="FUNCTION"),
]
Positions = Annotated[
    list[str] | None,
    option(
        "Where to continue reading if no offset is committed. TOPIC=earliest and TOPIC=latest are possible, too.",
        metavar="TOPIC:PARTITION=OFFSET",
    ),
]


@dataclass(frozen=True)
class StateOptions(OptionGroup):
    """Options for state whose new place the engine cannot know."""

    by_key: Annotated[
        list[str] | None,
        option(
            "Confirm that the rows of this processor's store have the keys of the records that wrote them.",
            metavar="STORE",
        ),
    ] = None
    drop: Annotated[
        list[str] | None,
        option("Accept that the rows of this store are lost, because it has no changelog.", metavar="STORE"),
    ] = None
    state: Annotated[
        list[str] | None,
        option("Copy or drop what this processor keeps in ctx.state in each task.", metavar="NODE=copy|drop"),
    ] = None

    def choices(self) -> UsersChoices:
        """Reads the options."""
        return UsersChoices(frozenset(self.by_key or ()), _states(self.state or []), frozenset(self.drop or ()))


@command
def rescale(
    target: Target,
    *,
    application: ApplicationOptions,
    tasks: Annotated[int | None, option("The new number of tasks.", min=1, metavar="N")] = None,
    placement: PlacedBy = None,
    state: StateOptions,
    abort: Annotated[bool, option("Undo an unfinished rescale that has not replaced anything yet.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move an application's state to more or fewer tasks (even more than there are partitions), or to another placement.

    Without --tasks and --placement, the state moves to the plan that a first start would choose today, which can run live: it has
    repartition topics where records change their task. Results and their order per key stay the same. The application must not be
    running. Run it again to finish an interrupted rescale. The old checkpoint is moved aside.
    """
    check_no_question(as_json, yes or dry_run, "add --dry-run, or --yes to rescale")
    choices, (topology, config) = state.choices(), application.of(target)
    say = partial(typer.echo, err=as_json)
    progress = RestoreProgress(doing="copying")
    with KafkaAdmin(config.client) as admin, open_checkpoint(config) as files, progress:
        moved = LiveRescale(config, admin, files, progress)
        if tasks is None and placement is None:
            rescaler, plan = moved.to_plan(topology, choices)
        else:
            rescaler, plan = moved.rescaler(topology, tasks, choices, placement), None
        planned = [as_dict(sub) for sub in rescaler.subs]
        for line in [*map(_line, rescaler.subs), *(() if plan is None else _about(plan, admin))]:
            say(line)
        if done := rescaler.waiting and not dry_run and (yes or _asked(abort)):
            commits = [commits_topic(config.application_id, sub.sub.name) for sub in rescaler.subs]
            with while_stopped(config, admin, commits):
                rescaler.abort() if abort else rescaler.run()
            if not abort:
                moved.forget_left_live()
                moved.forget_local_state(rescaler.tasks, say)
                say(_done(tasks, placement))
        elif rescaler.waiting and not abort:
            rescaler.check()
        if as_json:
            what = {"application_id": config.application_id, "tasks": tasks, "placement": placement, "done": bool(done)}
            print_json({**what, "added_topics": {} if plan is None else plan.added, "sub_topologies": planned})


def _about(plan: Replan, admin: KafkaAdmin) -> Iterator[str]:
    """Lines about the new plan: what it adds, and what still cannot run live."""
    for topic, why in sorted(plan.added.items()):
        yield f"adds the topic {topic}: {why}"
    for name in plan.without_idle_time:
        yield f"{name} reads an added topic: idle_timeout_ms no longer has an effect there"
    topics = sorted({topic for one in plan.after.subs for topic in one.sub.topics})
    partitions = {name: info.partitions for name, info in admin.describe_topics(topics).items()}
    for name, why in sorted(plan.obstacles(partitions).items()):
        yield f"{name} stays in micro-batches: {why}"


def as_dict(sub: SubRescale) -> dict[str, Any]:
    """A sub-topology as JSON data; `phase` is the phase of an unfinished rescale, or null."""
    return {
        "name": sub.sub.name,
        "from": sub.old,
        "to": sub.parts[0].tasks,
        "placement_from": sub.before.value,
        "placement_to": sub.parts[0].placement.value,
        "stores": _stores(sub.sub),
        "parts": [
            {"name": part.name, "tasks": part.tasks, "placement": part.placement.value, "stores": _stores(part.sub)}
            for part in sub.parts
        ],
        "phase": sub.phase.value if sub.phase else None,
    }


def _stores(sub: SubTopology) -> list[str]:
    return [name for name, node in sub.stores.items() if node.spec.logged]


def _line(sub: SubRescale) -> str:
    if not sub.needed:
        return f"{sub.sub.name}: has {sub.new} tasks by {sub.then.value}, or has never run: nothing to do"
    phase = f"; already begun, and continues ({sub.phase.value})" if sub.phase else ""
    if [part.name for part in sub.parts] != [sub.sub.name]:
        parts = ", ".join(
            f"{part.name} ({counted(part.tasks, 'task')} by {part.placement.value}, {_names(part.sub)})"
            for part in sub.parts
        )
        return f"{sub.sub.name}: from {counted(sub.old, 'task')} by {sub.before.value} to {parts}{phase}"
    (part,) = sub.parts
    placed = "" if sub.before is part.placement else f", from {sub.before.value} to {part.placement.value}"
    return f"{sub.sub.name}: from {sub.old} to {part.tasks} tasks{placed} ({_names(sub.sub)}){phase}"


def _names(sub: SubTopology) -> str:
    return ", ".join(_stores(sub)) or "no stores"


def _done(tasks: int | None, placement: Placement | None) -> str:
    asked = {"tasks": tasks, "placement": None if placement is None else placement.value}
    settings = " and ".join(f"{name}={value}" for name, value in asked.items() if value is not None)
    if not settings:
        return "done: start the application"
    return f"done: start the application with {settings}, or without this setting"


def _asked(abort: bool) -> bool:
    question = "Undo the unfinished rescale?" if abort else "The application must not be running. Move its state?"
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
    position: Positions = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Create a new checkpoint from an application's commits, if its checkpoint is lost, damaged or rolled back.

    No record is lost or processed twice. The old checkpoint is moved aside. The checkpoint of a foreach_batch sink is created
    again if it is missing. Refused while the application runs.
    """
    topology, config = application.of(target)
    given = GivenPositions.parse(position or ())
    with KafkaAdmin(config.client) as admin, open_checkpoint(config) as files:
        planned = plan_application(topology, config, admin)
        check_start(planned, admin, live(config))
        adopter = Adopter(Preflight(planned, files, admin, typer.echo), given)
        misfits, sinks = adopter.misfits(), lost_sinks(planned, files, admin)
        if not misfits and not sinks:
            typer.echo(f"The checkpoint {config.checkpoint_dir} matches the commits: there is nothing to do.")
            return
        for prepared, findings in misfits:
            typer.echo(findings.wrong)
            for what, which in described(adopter.plan(prepared, findings), prepared.tasks).items():
                typer.echo(f"  {what}: {which}")
        for name, note in sinks.items():
            typer.echo(
                f"{name}: its checkpoint is missing; a new one continues after batch {note.batch}, or repeats it"
            )
        if dry_run or not (
            yes or typer.confirm("The application must not be running. Create a new checkpoint?", abort=True)
        ):
            return
        commits = [commits_topic(config.application_id, prepared.sub.name) for prepared in planned.subs]
        with while_stopped(config, admin, commits):
            for prepared, findings in misfits:
                adopter.adopt(prepared, findings)
            for name, note in sinks.items():
                write_checkpoint(files, name, note)
