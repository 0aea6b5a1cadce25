"""The check before a start creates anything: whether the program may continue with its application's state.

A start that is refused here has left no trace: no topic, no file. Whether Spark's checkpoint matches the commit markers is a
separate check (`preflight`), once the topics exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from state.changelog.topics import commits_topic
from state.commit.last_marker import MarkerLog
from state.errors import ChangelogMismatchError
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicPartition
from streams.application.markers import newest_markers
from streams.application.prepare import Application
from streams.application.rescale.notes import check_no_rescale
from streams.application.reset_checkpoint import check_no_reset
from streams.application.topology_manifest import described_repartitions, own_manifest
from streams.checkpoint.files import LocalFiles, is_local
from streams.checkpoint.log import confirmed_end
from streams.errors import TopologyMismatchError
from streams.topology.change import REFUSED
from streams.topology.diff import compare_plan, unreadable_topics
from streams.topology.graph import InternalTopic
from streams.topology.manifest import plan_manifest
from streams.topology.plan import Plan


def check_start(application: Application, admin: KafkaAdmin, log: MarkerLog) -> None:
    """Refuses a start that would damage the application's state or lose input.

    Raises:
        RescaleUnfinishedError: An unfinished rescale has moved a part of the state.
        StreamsError: As of `check_may_continue`.
        ChangelogMismatchError: The state is that of another number of tasks.
    """
    plan = application.plan
    check_no_rescale(plan.application_id, [sub.name for sub in plan.sub_topologies], admin)
    check_may_continue(application, admin, log)
    check_tasks(application, admin)


def check_may_continue(application: Application, admin: KafkaAdmin, log: MarkerLog) -> None:
    """Checks that the program may continue with the application's state, whatever the number of tasks.

    Raises:
        ResetUnfinishedError: An unfinished reset has deleted a part of the state.
        TopologyMismatchError: The state was written by a program with another structure.
        ChangelogMismatchError: A commits topic belongs to another application.
        CheckpointMismatchError: The checkpoint belongs to another application.
    """
    config = application.config
    check_no_reset(config.application_id, config.checkpoint_dir)
    check_owner(application.plan, admin, log)
    kept = own_manifest(config)
    if kept is not None and _has_committed(kept, config.application_id, admin):
        check_program(application.plan, kept)
        check_readable(application, kept, admin)
        check_all_read(application, kept, admin)


def check_tasks(application: Application, admin: KafkaAdmin) -> None:
    """Checks that the state is that of as many tasks as the application is about to have.

    Raises:
        ChangelogMismatchError: It is not.
    """
    app = application.config.application_id
    tasks = {commits_topic(app, prepared.sub.name): prepared.tasks for prepared in application.subs}
    for topic, info in admin.describe_topics(tasks).items():
        places = [(topic, partition) for partition in range(info.partitions)]
        if info.partitions != tasks[topic] and any(admin.end_offsets(places).values()):
            raise ChangelogMismatchError(
                topic,
                f"the state in Kafka is that of {info.partitions} tasks, and the application is about to run with {tasks[topic]}",
                f"nothing was written; `streams rescale MODULE:TOPOLOGY -a {app} --tasks {tasks[topic]}` moves the state to as "
                f"many tasks; or leave tasks={info.partitions}",
            )


def check_owner(plan: Plan, admin: KafkaAdmin, log: MarkerLog) -> None:
    """Checks that the commits topics are this application's, as far as their markers show.

    Raises:
        ChangelogMismatchError: A topic belongs to another application.
    """
    app = plan.application_id
    topics = [commits_topic(app, sub.name) for sub in plan.sub_topologies]
    for topic, info in admin.describe_topics(topics).items():
        # One marker is enough: no application commits to a topic with another application's markers.
        marker = next(newest_markers(log, topic, range(info.partitions)), None)
        if marker is not None and marker.application_id not in ("", app):
            raise ChangelogMismatchError(
                topic,
                f"it holds commits of the application {marker.application_id!r}, whose sub-topology makes the same name as one of "
                f"{app!r} does; both would write as one",
                f"nothing was written; give this application another id, one that {marker.application_id!r} does not begin with",
            )


def check_program(plan: Plan, kept: Mapping[str, Any]) -> None:
    """Checks that the program may continue with the state of the described one.

    Raises:
        TopologyMismatchError: It may not; the message lists all the reasons.
    """
    against = [change for change in compare_plan(kept, plan) if change.refused and not change.depends]
    if against:
        said = "; ".join(
            f"{change.where}: {change.what} {change.says.removesuffix(f'. {REFUSED}')}" for change in against
        )
        raise TopologyMismatchError(
            f"the state of {plan.application_id} was written by another topology, described in topology.json in the checkpoint's "
            f"folder: {said}. {REFUSED}. Nothing was written. `streams diff` shows all differences."
        )


def check_readable(application: Application, kept: Mapping[str, Any], admin: KafkaAdmin) -> None:
    """Checks that the program can read the records that wait in its repartition topics.

    Raises:
        TopologyMismatchError: Their fields are not those that it needs.
    """
    app = application.config.application_id
    changed = unreadable_topics(kept, plan_manifest(application.plan, sorted(kept["sub_topologies"])))
    topics = {f"{app}-{name}": why for name, why in changed.items()}
    if waiting := sorted(application.unread(admin, topics)):
        raise TopologyMismatchError(
            f"{waiting[0]}: the old program of {app} has written records there that this one cannot read: {topics[waiting[0]]}. "
            f"Nothing was written. Give a new field a default, or let the old program run until its lag is 0, then start this one."
        )


def check_all_read(application: Application, kept: Mapping[str, Any], admin: KafkaAdmin) -> None:
    """Checks that all records in repartition topics which the new program no longer has were read.

    Raises:
        TopologyMismatchError: Some records are unread.
    """
    config = application.config
    app = config.application_id
    gone = described_repartitions(kept, app) - application.plan.repartition_topics.keys()
    sinks = {InternalTopic(name).topic_name(app): name for name in kept.get("lake_sinks", ())}
    unread = application.unread(admin, gone, _confirmed(config.checkpoint_dir, sinks))
    if unread:
        dropped = ", ".join(
            f"`streams reset {app} --drop-sink {sinks[topic]}`" for topic in sorted(unread & sinks.keys())
        )
        raise TopologyMismatchError(
            f"{', '.join(sorted(unread))}: the old program of {app} has written there what it has not read again yet, and this one "
            f"does not know the topic: it would be lost. Nothing was written. Let the old program run until its lag is 0, then "
            f"start this one{f'; or give up what waits there with {dropped}' if dropped else ''}."
        )


def _confirmed(checkpoint_dir: str, sinks: Mapping[str, str]) -> dict[TopicPartition, int]:
    """What functions of foreach_batch have got, by the checkpoint: versions before the note in Kafka have left no other trace."""
    files = LocalFiles(checkpoint_dir)
    ends = {topic: confirmed_end(files, name, topic) for topic, name in sinks.items() if is_local(checkpoint_dir)}
    return {(topic, n): at for topic, end in ends.items() if end for n, at in enumerate(end.offsets)}


def _has_committed(kept: Mapping[str, Any], application_id: str, admin: KafkaAdmin) -> bool:
    """Whether the described program has committed anything; if not, it has written no state."""
    found = admin.describe_topics(commits_topic(application_id, name) for name in kept["sub_topologies"])
    places = [(name, p) for name, info in found.items() for p in range(info.partitions)]
    return any(end > 0 for end in admin.end_offsets(places).values())
