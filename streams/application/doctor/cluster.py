"""Settings of brokers and topics that weaken or break exactly-once, and partitions that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from state.changelog.topics import changelog_topic, commits_topic
from streams.application.doctor.findings import Finding, Place, Severity
from streams.application.doctor.inspection import Inspection
from streams.wording import counted

_SAFE_REPLICAS = 3
_LOGS = {
    "transaction.state.log.replication.factor": "the log of transactions",
    "offsets.topic.replication.factor": "the consumer groups' offsets",
}
DAY_MIN = 24 * 60


def brokers(inspection: Inspection) -> Iterator[Finding]:
    """Checks the settings of the brokers."""
    found = inspection.survey.broker_settings()
    wanted = inspection.config.transaction_timeout_ms
    for broker, settings in sorted(found.items()):
        allowed = int(settings.get("transaction.max.timeout.ms", wanted))
        if allowed < wanted:
            yield Finding(
                Severity.ERROR,
                f"broker {broker} allows transactions of {allowed} ms at most (transaction.max.timeout.ms), the application asks "
                f"for {wanted} ms (transaction_timeout_ms): no task can begin one",
                inspection.command("run", f"--set transaction_timeout_ms={allowed}"),
            )
        if settings.get("unclean.leader.election.enable") == "true":
            yield Finding(
                Severity.WARNING,
                f"broker {broker} elects unclean leaders: after a failure a replica that lacks committed records may lead, and "
                "markers, changelogs and inputs lose what was committed",
                "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type brokers --entity-default --add-config "
                "unclean.leader.election.enable=false",
            )
        minutes = int(settings.get("offsets.retention.minutes", DAY_MIN))
        if minutes < DAY_MIN:
            yield Finding(
                Severity.NOTE,
                f"broker {broker} forgets the offsets of a group that is quiet for {minutes} minutes "
                "(offsets.retention.minutes): after a longer stop, `streams adopt` asks for positions",
            )
    if len(found) >= _SAFE_REPLICAS:
        yield from _cluster_logs(next(iter(found.values())))


def _cluster_logs(settings: Mapping[str, str]) -> Iterator[Finding]:
    for key, what in _LOGS.items():
        if int(settings.get(key, _SAFE_REPLICAS)) < _SAFE_REPLICAS:
            yield Finding(
                Severity.WARNING,
                f"{what}: {settings[key]} replicas only ({key}); without those brokers it is away, without their disks it is lost",
            )
    if int(settings.get("transaction.state.log.min.isr", 2)) < 2:
        yield Finding(
            Severity.WARNING,
            "transaction.state.log.min.isr is 1: the decision about a transaction may be on one broker only, and be lost with it",
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
                yield Finding(
                    Severity.ERROR,
                    f"{counted(copies.in_sync, 'replica')} of {copies.all} in sync, and min.insync.replicas is {least}: no "
                    "transaction that writes there can be committed. Bring the brokers back",
                    place=Place(topic=topic, partition=partition),
                )
        fewest = min((copies.all for copies in of.values()), default=0)
        if topic in own and fewest < _SAFE_REPLICAS <= brokers_now:
            yield Finding(
                Severity.WARNING,
                f"the topic has {counted(fewest, 'replica')} in a cluster of {brokers_now} brokers: the loss of "
                f"{'one disk' if fewest == 1 else 'two'} may lose state",
                "kafka-reassign-partitions.sh --bootstrap-server HOST:PORT --reassignment-json-file FILE --execute",
                Place(topic=topic),
            )
        elif fewest >= _SAFE_REPLICAS and least < 2:
            yield Finding(
                Severity.WARNING,
                "min.insync.replicas is 1: a commit that one broker alone holds may be lost with it",
                f"kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name {topic} --add-config "
                "min.insync.replicas=2",
                Place(topic=topic),
            )
