"""`streams transactions`: the open transactions on the topics of an application, and how hanging ones are ended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import typer

from state.changelog import changelog_topic, commits_topic
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import partitions_of
from streams.application.prepare import Application, plan_application
from streams.application.transactions import OpenTransaction, end, open_transactions
from streams.cli.command import OptionGroup, argument, command, option
from streams.cli.options import (
    ApplicationOptions,
    AsJson,
    Yes,
    check_no_question,
    complete_topics,
    reachable,
)
from streams.cli.output import print_json, print_table
from streams.cli.target import TopologyTarget
from streams.cluster.java_admin import JavaAdmin
from streams.config import StreamsConfig
from streams.config.settings import age_in_words
from streams.errors import ConfigError

_PAUSE_S = 2.0

TORN = (
    "its coordinator has committed this transaction, and only the control record on this partition is missing: an abort here would "
    "split the step, because its other partitions are committed"
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
    """Options that choose transactions and decide what happens to them."""

    topic: Annotated[
        list[str] | None, option("A topic to check; may be repeated.", metavar="TOPIC", autocompletion=complete_topics)
    ] = None
    hanging: Annotated[bool, option("Only transactions that no coordinator will end.")] = False
    abort: Annotated[
        str | None, option("End the open transactions of this transactional id, by fencing its producer.", metavar="ID")
    ] = None
    abort_hanging: Annotated[bool, option("End the hanging transactions in the list.")] = False
    force: Annotated[bool, option("Abort even if other partitions of the transaction are committed.")] = False

    @property
    def ends(self) -> bool:
        """Whether to end the chosen transactions."""
        return self.abort_hanging or self.abort is not None

    def includes(self, one: OpenTransaction) -> bool:
        """Whether a transaction is chosen."""
        only_hanging = self.hanging or self.abort_hanging
        return (one.hangs or not only_hanging) and self.abort in (None, one.transactional_id)


@command
def transactions(
    target: Annotated[
        str | None, argument("The topology of an application. Without it, give --topic.", metavar="[TARGET]")
    ] = None,
    *,
    application: ApplicationOptions,
    choice: TransactionChoice,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the open transactions on an application's topics or on given topics, and end them on request.

    A running application has short transactions all the time. A hanging one blocks every reader with read_committed forever,
    because no coordinator knows it. Needs Java and the jars of `streams broker fetch`.
    """
    check_no_question(as_json and choice.ends, yes, "add --yes to end transactions")
    config, topics = _looked_at(target, application, choice.topic or [])
    with KafkaAdmin(config.client) as admin, JavaRequests(config.client) as java:
        places = sorted(partitions_of(admin.describe_topics(topics)))
        opened = open_transactions(admin, java.admin, places, lambda: time.sleep(_PAUSE_S))
        shown = [one for one in opened if choice.includes(one)]
        now_ms = int(time.time() * 1000)
        print_json([as_dict(one, now_ms) for one in shown]) if as_json else _print(shown, now_ms)
        if not choice.ends or not shown:
            return
        _check_whole(shown, choice.force)
        if not yes:
            typer.confirm("End these? Their records will never become visible. Stop the application first", abort=True)
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
            "commits the rest. --force aborts it anyway"
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
