"""Settings of brokers and topics that weaken or break exactly-once, and partitions that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from state.changelog import (
    changelog_config,
    changelog_topic,
    check_topic,
    commits_config,
    commits_topic,
    endpoints_topic,
    pauses_topic,
    repartition_config,
)
from state.commit.marker import CommitMarker
from state.errors import ChangelogMismatchError, MarkerFormatError
from state.kafka.topics import TopicPartition
from streams.application.dead_letters import check_dead_letter_topic
from streams.application.doctor.inspection import Finding, Inspection, Place, Severity, SubLook
from streams.application.owned_topics import own_manifest, owned_topics
from streams.application.transactions import OpenTransaction, open_transactions, undecided
from streams.config.settings import age_in_words
from streams.errors import ConfigError
from streams.wording import counted

_SAFE_REPLICAS = 3
_LOGS = {
    "transaction.state.log.replication.factor": "the log of transactions",
    "offsets.topic.replication.factor": "the consumer groups' offsets",
}
DAY_MIN = 24 * 60


def brokers(inspection: Inspection) -> Iterator[Finding]:
    found = inspection.survey.broker_settings()
    wanted = inspection.config.transaction_timeout_ms
    for broker, settings in sorted(found.items()):
        allowed = int(settings.get("transaction.max.timeout.ms", wanted))
        if allowed < wanted:
            yield Finding.error(
                f"broker {broker} allows transactions of {allowed} ms at most (transaction.max.timeout.ms), the application asks "
                f"for {wanted} ms (transaction_timeout_ms): no task can begin a transaction",
                inspection.command("run", f"--set transaction_timeout_ms={allowed}"),
            )
        if settings.get("unclean.leader.election.enable") == "true":
            yield Finding.warning(
                f"broker {broker} allows unclean leader election: after a failure, a replica that lacks committed records may "
                "become the leader, and markers, changelogs and inputs lose what was committed",
                "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type brokers --entity-default --add-config "
                "unclean.leader.election.enable=false",
            )
        minutes = int(settings.get("offsets.retention.minutes", DAY_MIN))
        if minutes < DAY_MIN:
            yield Finding.note(
                f"broker {broker} forgets the offsets of a group that is quiet for {minutes} minutes "
                "(offsets.retention.minutes): after a longer stop, `streams adopt` asks for positions",
            )
    if len(found) >= _SAFE_REPLICAS:
        yield from _cluster_logs(next(iter(found.values())))


def _cluster_logs(settings: Mapping[str, str]) -> Iterator[Finding]:
    for key, what in _LOGS.items():
        if int(settings.get(key, _SAFE_REPLICAS)) < _SAFE_REPLICAS:
            yield Finding.warning(
                f"{what}: only {settings[key]} replicas ({key}); it is unavailable while their brokers are down, "
                "and is lost with their disks",
            )
    if int(settings.get("transaction.state.log.min.isr", 2)) < 2:
        yield Finding.warning(
            "transaction.state.log.min.isr is 1: the outcome of a transaction may be on a single broker, and lost with it",
        )


def replicas(inspection: Inspection) -> Iterator[Finding]:
    """Checks that each topic of the application can be written, and survives the loss of a broker."""
    app = inspection.app
    own = {
        *(commits_topic(app, look.name) for look in inspection.subs),
        *(changelog_topic(app, name) for look in inspection.subs for name in look.prepared.sub.stores),
        *inspection.application.plan.repartition_topics,
    }
    brokers_now = len(inspection.survey.broker_settings())
    topics = inspection.admin.describe_topics(sorted(own | inspection.output_topics))
    found = inspection.survey.replicas(sorted(topics))
    for topic in sorted(topics):
        least = int(inspection.admin.topic_config(topic).get("min.insync.replicas", 1))
        of = {place: copies for place, copies in found.items() if place[0] == topic}
        for (_, partition), copies in sorted(of.items()):
            if copies.in_sync < least:
                yield Finding.error(
                    f"{counted(copies.in_sync, 'replica')} of {copies.all} in sync, and min.insync.replicas is {least}: no "
                    "transaction that writes there can be committed. Bring the brokers back",
                    place=Place(topic=topic, partition=partition),
                )
        fewest = min((copies.all for copies in of.values()), default=0)
        if topic in own and fewest < _SAFE_REPLICAS <= brokers_now:
            yield Finding.warning(
                f"the topic has {counted(fewest, 'replica')} in a cluster of {brokers_now} brokers: the loss of "
                f"{'one disk' if fewest == 1 else 'two'} may lose state",
                "kafka-reassign-partitions.sh --bootstrap-server HOST:PORT --reassignment-json-file FILE --execute",
                Place(topic=topic),
            )
        elif fewest >= _SAFE_REPLICAS and least < 2:
            yield Finding.warning(
                "min.insync.replicas is 1: a commit may be on a single broker, and lost with it",
                f"kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name {topic} --add-config "
                "min.insync.replicas=2",
                Place(topic=topic),
            )


# --- The application's topics: missing, of the wrong size, with settings that lose state, or left over.

LOST_CHANGELOG = (
    "Restore the topic from a backup with the offsets that it had, then `{adopt}`; keep the state_dir of every host until then. "
    "Without a backup, the state can only be computed again from the inputs"
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
                yield Finding.error(f"{error.found}; {error.remedy}", _fix(error), Place(look.name, topic=topic))


def _fix(error: ChangelogMismatchError) -> str | None:
    """The command that an error's own remedy contains."""
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
        # As at a start: the first start decided the number, perhaps with more or fewer tasks.
        first = known[name].partitions if name in known else tasks
        wanted[name] = (repartitions[name] or first, repartition_config(replication))
    return wanted


def _missing(inspection: Inspection, look: SubLook, topic: str) -> Iterator[Finding]:
    """A missing topic is normal before the first start; later it is a loss."""
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
        yield Finding.error(
            f"the changelog of store {store!r} is missing, and the task has written it up to offset {end}. "
            + LOST_CHANGELOG.format(adopt=inspection.command("adopt")),
            f"streams reset {inspection.app} --dry-run",
            Place(look.name, task, topic, task, end),
        )


def outputs(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the user's output topics exist, and that dead letters can stay in theirs."""
    found = inspection.admin.describe_topics(sorted(inspection.output_topics))
    for topic in sorted(inspection.output_topics - found.keys()):
        yield Finding.error(
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
            yield Finding.error(
                str(error),
                inspection.command("run", "--dead-letter-topic TOPIC") if configured else None,
                Place(topic=name),
            )


def left_over(inspection: Inspection) -> Iterator[Finding]:
    """Looks for internal topics that the program no longer uses, or that cannot be proved to belong to it."""
    plan = inspection.application.plan
    used = {topic for look in inspection.subs for topic in _wanted(inspection, look)} | plan.internal_topics.keys()
    # Without the first topic, everything that is paused would resume. Processes that serve the stores write the second one.
    used |= {pauses_topic(inspection.app), endpoints_topic(inspection.app)}
    found = owned_topics(inspection.app, own_manifest(inspection.config), inspection.admin, inspection.kafka)
    for topic, proof in found.own.items():
        if topic not in used:
            yield Finding.note(
                f"the application has made this topic (known from {proof}), and the program does not use it any more. Delete "
                f"it once no older program will run again",
                f"streams topic delete {topic}",
                Place(topic=topic),
            )
    unproven = [topic for topic in found.unproven if topic not in used]
    for topic in unproven:
        yield Finding.note(
            f"the name is that of an internal topic of {inspection.app}, but nothing proves that it is one. If it is, name it "
            f"in a reset to delete it",
            f"streams reset {inspection.app} --topics {topic} --dry-run",
            Place(topic=topic),
        )


# --- Who else is at work: open and hanging transactions, and a second driver under the same application id.

RECENT_MS = 10 * 60_000
_LAST = 64
"""How many offsets of a commits partition are checked."""
_STEP = 2
"""The offsets of one step: its marker, and the control record of its transaction."""


def transactions(inspection: Inspection) -> Iterator[Finding]:
    app = inspection.app
    topics = set(inspection.source_topics) | set(inspection.application.plan.repartition_topics)
    for look in inspection.subs:
        topics |= {commits_topic(app, look.name), *(changelog_topic(app, name) for name in look.prepared.sub.stores)}
    places = inspection.partitions(topics)
    before = undecided(inspection.admin, places)
    if not before:
        return
    inspection.pause()
    # A transaction of a running application has ended by now, or another one begins elsewhere.
    still = [place for place, (stable, _) in undecided(inspection.admin, before).items() if stable == before[place][0]]
    asked = inspection.transactions() if still else None
    if asked is None:
        for place in still:
            yield Finding.warning(
                "a transaction is open here and does not progress: its producer is working, or it hangs. Readers with "
                "read_committed do not see the records after it. (The transaction itself could not be checked: that needs Java and "
                "the broker's jars, `streams broker fetch`)",
                inspection.command("transactions"),
                Place(topic=place[0], partition=place[1], offset=before[place][0]),
            )
        return
    for one in open_transactions(inspection.admin, asked, still, inspection.pause):
        if one.blocks:
            yield _open(inspection, one)


def _open(inspection: Inspection, one: OpenTransaction) -> Finding:
    where = Place(topic=one.place[0], partition=one.place[1], offset=one.producer.start_offset)
    who = one.transactional_id or f"an unknown transactional id (producer id {one.producer.producer_id})"
    if one.hangs:
        return Finding.error(
            f"a transaction of {who} hangs: no coordinator will end it, and no reader with read_committed gets past it",
            inspection.command("transactions", "--hanging"),
            where,
        )
    now_ms = inspection.now_ms()
    age = one.age_ms(now_ms)
    since = "" if age is None else f" for {age_in_words(age)}"
    assert one.coordinator is not None
    return Finding(
        Severity.WARNING if one.overdue(now_ms) else Severity.NOTE,
        f"a transaction of {who} is open{since}; its coordinator aborts it after {one.coordinator.timeout_ms} ms at the latest",
        inspection.command("transactions"),
        where,
    )


def drivers(inspection: Inspection) -> Iterator[Finding]:
    """Looks for two drivers that fence each other's tasks, in the last commits of each task."""
    for look in inspection.subs:
        for task in look.found:
            yield from _commits_of_task(inspection, look, task)


def _commits_of_task(inspection: Inspection, look: SubLook, task: int) -> Iterator[Finding]:
    place = (commits_topic(inspection.app, look.name), task)
    recent = [
        (offset, marker)
        for offset, marker in _last_markers(inspection, place)
        if inspection.now_ms() - marker.now_ms < RECENT_MS
    ]
    queries = [marker.query_id for _, marker in recent]
    turns = sum(one != other for one, other in pairwise(queries))
    where = Place(look.name, task, *place)
    # Each adoption changes the checkpoint once. Two drivers change it again and again.
    if turns > max(1, len(set(queries)) - 1):
        yield Finding.error(
            f"commits of different checkpoints ({', '.join(sorted(set(queries)))}) take turns: two drivers run under the "
            f"application id {inspection.app}. Stop one of them, and give it its own application id",
            inspection.command("status", "--watch"),
            where,
        )
    lost = sum(later[0] - earlier[0] - _STEP for earlier, later in pairwise(recent)) // _STEP
    if lost > 0:
        yield Finding.warning(
            f"{counted(lost, 'attempt')} of this task were aborted within the last {age_in_words(RECENT_MS)}, after their marker "
            "was written: attempts that failed or took longer than transaction_timeout_ms, or a second driver under the same "
            "application id, which fences this one. See the application's own messages, and make sure that it runs once",
            inspection.command("status", "--watch"),
            where,
        )


def _last_markers(inspection: Inspection, place: TopicPartition) -> list[tuple[int, CommitMarker]]:
    """The last committed markers of a task with their offsets, the oldest first."""
    kafka = inspection.kafka
    end = kafka.end_offsets([place])[place]
    start = max(kafka.begin_offset(place), end - _LAST)
    found = []
    for columns in kafka.read(*place, start, end):
        for offset, value in zip(columns.offsets.tolist(), columns.values.to_pylist(), strict=True):
            try:
                found.append((offset, CommitMarker.from_bytes(value)))
            except MarkerFormatError:
                continue
    return found
