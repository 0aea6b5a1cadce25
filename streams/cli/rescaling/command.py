"""`streams rescale`: moves an application's state to another number of tasks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from state.changelog.topics import commits_topic
from state.kafka.admin import KafkaAdmin
from streams.application.instances import while_stopped
from streams.application.rescale.plan import Handling, UsersChoices
from streams.application.rescale.rescale import LiveRescale, SubRescale
from streams.cli.command import command
from streams.cli.operations.checkpoints import open_checkpoint
from streams.cli.output import print_json
from streams.cli.rescaling.progress import RescaleProgress
from streams.cli.settings import ApplicationOptions, AsJson, Target, reachable
from streams.cli.target import TopologyTarget
from streams.errors import ConfigError

Stores = Annotated[
    list[str] | None,
    typer.Option(
        "--by-key", metavar="STORE", help="Rows of this processor's store are stored under the keys of their records."
    ),
]
Dropped = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="STORE", help="This store has no changelog, and its rows may be lost."),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state", metavar="NODE=copy|drop", help="What becomes of what this processor keeps in ctx.state in each task."
    ),
]


@command
def rescale(
    target: Target,
    *,
    application: ApplicationOptions,
    tasks: Annotated[int | None, typer.Option("--tasks", min=1, metavar="N", help="The new number of tasks.")] = None,
    by_key: Stores = None,
    drop: Dropped = None,
    state: States = None,
    abort: Annotated[
        bool, typer.Option("--abort", help="Take back an unfinished rescale that has replaced nothing yet.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and end.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Move an application's state to more or fewer tasks, beyond the number of partitions, too.

    Results and their order per key stay the same. The application must not be running.
    An interrupted rescale is finished by running it again; the old checkpoint is moved aside.
    """
    if tasks is None:
        raise ConfigError("streams rescale needs the new number of tasks: --tasks N")
    if as_json and not (yes or dry_run):
        raise ConfigError("--json cannot ask: add --dry-run, or --yes to rescale")
    choices = UsersChoices(frozenset(by_key or ()), _states(state or []), frozenset(drop or ()))
    program = TopologyTarget.parse(target)
    config = reachable(application.load(program.application_id()))

    def say(text: str) -> None:
        typer.echo(text, err=as_json)

    with KafkaAdmin(config.client) as admin, open_checkpoint(config) as files, RescaleProgress() as progress:
        live = LiveRescale(config, admin, files, progress)
        rescaler = live.rescaler(program.load(), tasks, choices)
        planned = [as_dict(sub) for sub in rescaler.subs]
        for sub in rescaler.subs:
            say(described(sub))
        done = False
        if rescaler.waiting and not dry_run and (yes or _asked(abort)):
            commits = [commits_topic(config.application_id, sub.sub.name) for sub in rescaler.subs]
            with while_stopped(config, admin, commits):
                rescaler.abort() if abort else rescaler.run()
            done = True
            if not abort:
                live.forget_local_state(tasks, say)
                say(f"done: start the application with tasks={tasks}, or without this setting")
        elif rescaler.waiting and not abort:
            rescaler.check()
        if as_json:
            print_json(
                {"application_id": config.application_id, "tasks": tasks, "done": done, "sub_topologies": planned}
            )


def as_dict(sub: SubRescale) -> dict[str, Any]:
    """A sub-topology for programs; `phase` is that of an unfinished rescale, or null."""
    return {
        "name": sub.sub.name,
        "from": sub.old,
        "to": sub.new,
        "stores": [name for name, node in sub.sub.stores.items() if node.spec.logged],
        "phase": sub.phase.value if sub.phase else None,
    }


def described(sub: SubRescale) -> str:
    if not sub.needed:
        return f"{sub.sub.name}: has {sub.new} tasks, or has never run: nothing to do"
    stores = ", ".join(name for name, node in sub.sub.stores.items() if node.spec.logged) or "no stores"
    phase = f"; begun already, and goes on ({sub.phase.value})" if sub.phase else ""
    return f"{sub.sub.name}: from {sub.old} to {sub.new} tasks ({stores}){phase}"


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
