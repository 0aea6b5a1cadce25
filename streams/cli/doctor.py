"""`streams doctor`: what is wrong, and which command fixes it; with `streams errors` and `streams transactions`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from state.changelog import changelog_topic, commits_topic
from state.kafka.admin import KafkaAdmin
from streams.application.doctor.examine import examine, findings
from streams.application.doctor.inspection import CheckResult, Inspection, Severity, worst
from streams.application.prepare import Application, plan_application
from streams.application.transactions import OpenTransaction, end, open_transactions
from streams.cli.command import NOT_SAFE, OptionGroup, argument, command, option
from streams.cli.options import (
    ApplicationOptions,
    AsJson,
    Target,
    Yes,
    check_no_question,
    complete_topics,
    live,
    open_checkpoint,
    reachable,
)
from streams.cli.output import print_finding, print_json, print_line, print_table, visible
from streams.cli.target import TopologyTarget
from streams.cluster.admin import Survey
from streams.cluster.java_admin import JavaAdmin
from streams.config import StreamsConfig
from streams.config.settings import age_in_words
from streams.errors import BrokerError, ConfigError
from streams.wording import counted, did_you_mean

_PAUSE_S = 2.0
_COLOURS = {Severity.OK: "green", Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red"}
_EXIT = {Severity.OK: 0, Severity.NOTE: 0, Severity.WARNING: NOT_SAFE, Severity.ERROR: 1}

_SHIPPED = Path(__file__).with_name("errors.md")
"""Where a wheel has the page of errors (setup.py)."""
_IN_REPOSITORY = Path(__file__).parents[2] / "docs" / "errors.md"


@command
def errors(name: Annotated[str | None, argument("An error's name; without one: all names.")] = None) -> None:
    """Print what an error means, what to do, and whether something is lost."""
    known = entries()
    if name is None:
        typer.echo("\n".join(known))
    elif name in known:
        typer.echo(f"{name}\n\n{known[name]}")
    else:
        raise ConfigError(f"there is no error {name!r}.{did_you_mean(name, known)}")


def entries() -> Mapping[str, str]:
    """The name of each error -> its entry in docs/errors.md, as plain text."""
    page = (_SHIPPED if _SHIPPED.exists() else _IN_REPOSITORY).read_text(encoding="utf-8")
    found = re.findall(r"^### (\w+)\n\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE)
    return {name: re.sub(r"\[([^]]+)\]\([^)]*\)|\*\*", r"\1", text).strip() for name, text in found}


@command
def doctor(target: Target, *, application: ApplicationOptions, as_json: AsJson = False) -> None:
    """Compare an application's checkpoint, commits, changelogs, local state and consumer group, and say what is wrong.

    Nothing is changed, and the application may run. Each finding names its place and the command that fixes it. Local state is
    that of this host. Exit code 0: healthy, or notes only; 3: warnings; 1: errors, with which a start fails or loses data.
    """
    topology, config = application.of(target)
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
    if _EXIT[verdict]:
        raise typer.Exit(_EXIT[verdict])


def _shown(results: Iterable[CheckResult], as_json: bool) -> list[CheckResult]:
    """The results, each printed as soon as it is there."""
    shown = []
    for result in results:
        shown.append(result)
        for one in () if as_json else result.findings:
            place = str(one.place)
            text = f"{result.check}: {place and f'{place}: '}{one.says}{'' if one.says.endswith('.') else '.'}"
            print_finding(one.severity.value, _COLOURS[one.severity], visible(text))
            if one.command:
                print_line(visible(f"{'':9}-> {one.command}"), Console())
    return shown


TORN = (
    "its coordinator has committed this transaction, and only the control record on this partition is missing: an abort here would "
    "tear the step apart, for its other partitions are committed"
)


class JavaRequests:
    """Kafka's admin client in Java, started when it is first asked for."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client

    @cached_property
    def admin(self) -> JavaAdmin:
        """The client.

        Raises:
            BrokerError: There is no Java, or the jars have not been fetched.
            ConfigError: A client property cannot be translated.
        """
        return JavaAdmin(self._client)

    def __enter__(self) -> JavaRequests:
        return self

    def __exit__(self, *_: object) -> None:
        if "admin" in self.__dict__:
            self.admin.close()


@dataclass(frozen=True)
class TransactionChoice(OptionGroup):
    """Options that choose transactions, and what happens to these."""

    topic: Annotated[
        list[str] | None, option("Topics to look at; may be repeated.", metavar="TOPIC", autocompletion=complete_topics)
    ] = None
    hanging: Annotated[bool, option("Only transactions that no coordinator is going to end.")] = False
    abort: Annotated[
        str | None, option("End the open transactions of this transactional id, by fencing its producer.", metavar="ID")
    ] = None
    abort_hanging: Annotated[bool, option("End the hanging transactions that are listed.")] = False
    force: Annotated[bool, option("Also abort where other partitions of the transaction are committed.")] = False

    @property
    def ends(self) -> bool:
        """Whether the chosen transactions are to be ended."""
        return self.abort_hanging or self.abort is not None

    def includes(self, one: OpenTransaction) -> bool:
        """Whether a transaction is chosen."""
        only_hanging = self.hanging or self.abort_hanging
        return (one.hangs or not only_hanging) and self.abort in (None, one.transactional_id)


@command
def transactions(
    target: Annotated[str | None, argument("The topology of an application; or --topic.", metavar="[TARGET]")] = None,
    *,
    application: ApplicationOptions,
    choice: TransactionChoice,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List open transactions on an application's topics, or on given ones; end them on request.

    A running application has short transactions all the time. One that hangs stops every reader with read_committed for ever:
    no coordinator knows it any more. Needs Java and the jars of `streams broker fetch`.
    """
    check_no_question(as_json and choice.ends, yes, "add --yes to end transactions")
    config, topics = _looked_at(target, application, choice.topic or [])
    with KafkaAdmin(config.client) as admin, JavaRequests(config.client) as java:
        found = admin.describe_topics(topics)
        places = [(name, number) for name, info in sorted(found.items()) for number in range(info.partitions)]
        opened = open_transactions(admin, java.admin, places, lambda: time.sleep(_PAUSE_S))
        shown = [one for one in opened if choice.includes(one)]
        now_ms = int(time.time() * 1000)
        print_json([as_dict(one, now_ms) for one in shown]) if as_json else _print(shown, now_ms)
        if not choice.ends or not shown:
            return
        _check_whole(shown, choice.force)
        if not yes:
            typer.confirm(
                "End these? What they have written is then never visible. Stop the application first", abort=True
            )
        end(java.admin, shown, (lambda _: None) if as_json else typer.echo)


def _looked_at(
    target: str | None, application: ApplicationOptions, topics: Sequence[str]
) -> tuple[StreamsConfig, list[str]]:
    """The settings, and the topics to look at."""
    if target is None and not topics:
        raise ConfigError("name an application's topology, or topics: streams transactions TARGET, or --topic TOPIC")
    if target is None or topics:
        default_id = "none" if target is None else TopologyTarget.parse(target).application_id()
        return reachable(application.load(default_id)), sorted(set(topics))
    topology, config = application.of(target)
    with KafkaAdmin(config.client) as admin:
        return config, sorted(topics_of(plan_application(topology, config, admin)))


def topics_of(application: Application) -> set[str]:
    """All topics that an application reads or writes, as far as its program names them."""
    app = application.config.application_id
    found = set(application.plan.repartition_topics)
    for prepared in application.subs:
        sub = prepared.sub
        found |= {commits_topic(app, sub.name), *sub.topics}
        found |= {changelog_topic(app, name) for name in sub.stores}
        found |= {str(sink.topic) for sink in sub.sinks if sink.topic is not None}
    return found


def _check_whole(opened: Sequence[OpenTransaction], force: bool) -> None:
    torn = [one for one in opened if one.committed_elsewhere]
    if torn and not force:
        topic, partition = torn[0].place
        raise ConfigError(
            f"{topic}-{partition}: {TORN}. Nothing was ended. Leave the topic as it is: Kafka has no command that "
            "commits the rest. --force aborts it nevertheless"
        )


def as_dict(one: OpenTransaction, now_ms: int) -> dict[str, Any]:
    view = one.coordinator
    return {
        "topic": one.place[0],
        "partition": one.place[1],
        "transactional_id": one.transactional_id,
        "producer_id": one.producer.producer_id,
        "producer_epoch": one.producer.epoch,
        "start_offset": one.producer.start_offset,
        "age_ms": one.age_ms(now_ms),
        "coordinator_state": None if view is None else view.state,
        "blocks_readers": one.blocks,
        "hangs": one.hangs,
        "committed_elsewhere": one.committed_elsewhere,
    }


def _print(opened: Sequence[OpenTransaction], now_ms: int) -> None:
    if not opened:
        typer.echo("no such transaction is open")
        return
    rows = []
    for one in opened:
        age = one.age_ms(now_ms)
        rows.append(
            (
                one.place[0],
                str(one.place[1]),
                str(one.producer.start_offset),
                f"{one.producer.producer_id}/{one.producer.epoch}",
                "" if age is None else age_in_words(age),
                one.transactional_id or "unknown",
                one.coordinator.state if one.coordinator else "does not know it",
                "wait for it" if one.blocks else "wait for another one",
                "hangs" if one.hangs else "overdue" if one.overdue(now_ms) else "open",
            )
        )
    headings = ("Topic", ">Partition", ">Start offset", ">Producer", ">Age")
    print_table((*headings, "Transactional id", "Coordinator", "Readers", "Verdict"), rows)
