"""The application's topics: missing, of the wrong size, with settings that lose state, or left over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from state.changelog.topics import (
    changelog_config,
    changelog_topic,
    check_topic,
    commits_config,
    commits_topic,
    pauses_topic,
    repartition_config,
)
from state.errors import ChangelogMismatchError
from streams.application.belongings import belongings
from streams.application.dead_letters.topic import check_dead_letter_topic
from streams.application.doctor.findings import Finding, Place, Severity
from streams.application.doctor.inspection import Inspection, SubLook
from streams.application.topology_manifest import own_manifest
from streams.errors import ConfigError

LOST_CHANGELOG = (
    "Restore the topic from a backup with the offsets that it had, then `{adopt}`; keep the state_dir of every host until then. "
    "Without a backup, the state can only be made anew from the inputs"
)


def internal_topics(inspection: Inspection) -> Iterator[Finding]:
    """Checks that internal topics exist with the right partitions and settings."""
    for look in inspection.subs:
        wanted = _wanted(inspection, look)
        found = inspection.admin.describe_topics(sorted(wanted))
        for topic, (partitions, settings) in sorted(wanted.items()):
            if topic not in found:
                yield from _missing(inspection, look, topic)
                continue
            try:
                check_topic(topic, found[topic].partitions, partitions, inspection.admin.topic_config(topic), settings)
            except ChangelogMismatchError as error:
                yield Finding(
                    Severity.ERROR, f"{error.found}; {error.remedy}", _fix(error), Place(look.name, topic=topic)
                )


def _fix(error: ChangelogMismatchError) -> str | None:
    """The command within the error's own remedy."""
    at = error.remedy.find("kafka-")
    return None if at < 0 else error.remedy[at:].replace(".sh ", ".sh --bootstrap-server HOST:PORT ", 1)


def _wanted(inspection: Inspection, look: SubLook) -> dict[str, tuple[int, Mapping[str, str]]]:
    """The internal topics that a sub-topology writes -> their partitions and settings."""
    app, replication, tasks = inspection.app, inspection.config.replication_factor, look.prepared.tasks
    repartitions = inspection.application.plan.repartition_topics
    wanted: dict[str, tuple[int, Mapping[str, str]]] = {
        changelog_topic(app, name): (tasks, changelog_config(node.spec, replication))
        for name, node in look.prepared.sub.stores.items()
        if node.spec.logged
    }
    wanted[commits_topic(app, look.name)] = (tasks, commits_config(replication))
    written = [name for sink in look.prepared.sub.sinks if (name := str(sink.topic)) in repartitions]
    known = inspection.admin.describe_topics(written)
    for name in written:
        # As at a start: the first one has decided, and there may have been more or fewer tasks then.
        first = known[name].partitions if name in known else tasks
        wanted[name] = (repartitions[name] or first, repartition_config(replication))
    return wanted


def _missing(inspection: Inspection, look: SubLook, topic: str) -> Iterator[Finding]:
    """A missing topic is normal before the first start, and a loss after it."""
    store = next((s for s in look.prepared.sub.stores if changelog_topic(inspection.app, s) == topic), None)
    written = {
        task: marker.changelog_ends[store]
        for task, marker in look.found.items()
        if store is not None and marker.changelog_ends.get(store)
    }
    if not written:
        # A commits topic that is lost under a checkpoint is found by the comparison with the checkpoint.
        return
    for task, end in written.items():
        yield Finding(
            Severity.ERROR,
            f"the changelog of store {store!r} is missing, and the task has written it up to offset {end}. "
            + LOST_CHANGELOG.format(adopt=inspection.command("adopt")),
            f"streams reset {inspection.app} --dry-run",
            Place(look.name, task, topic, task, end),
        )


def outputs(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the user's output topics exist, and that dead letters can stay in theirs."""
    found = inspection.admin.describe_topics(sorted(inspection.output_topics))
    for topic in sorted(inspection.output_topics - found.keys()):
        yield Finding(
            Severity.ERROR,
            "the application writes to this topic, and it does not exist, or these credentials may not see it",
            f"streams topic create {topic} --partitions N",
            Place(topic=topic),
        )
    for name in inspection.application.dead_letter_topics:
        if name not in found:
            continue
        try:
            check_dead_letter_topic(name, inspection.application.plan, inspection.admin)
        except ConfigError as error:
            configured = name == inspection.config.dead_letter_topic
            yield Finding(
                Severity.ERROR,
                str(error),
                inspection.command("run", "--dead-letter-topic TOPIC") if configured else None,
                Place(topic=name),
            )


def left_over(inspection: Inspection) -> Iterator[Finding]:
    """Looks for internal topics that the program no longer has, and for some that nobody can be proved to own."""
    plan = inspection.application.plan
    used = {topic for look in inspection.subs for topic in _wanted(inspection, look)} | plan.internal_topics.keys()
    # Without this topic, what is paused would resume.
    used.add(pauses_topic(inspection.app))
    found = belongings(inspection.app, own_manifest(inspection.config), inspection.admin, inspection.kafka)
    for topic, proof in found.own.items():
        if topic not in used:
            yield Finding(
                Severity.NOTE,
                f"the application has made this topic (known from {proof}), and the program does not use it any more. Delete it "
                "once no older program is to be run again",
                f"streams topic delete {topic}",
                Place(topic=topic),
            )
    unproven = [topic for topic in found.unproven if topic not in used]
    for topic in unproven:
        yield Finding(
            Severity.NOTE,
            f"the name is that of an internal topic of {inspection.app}, but nothing proves that it is one. If it is, a reset "
            "takes it along when it is named",
            f"streams reset {inspection.app} --topics {topic} --dry-run",
            Place(topic=topic),
        )
