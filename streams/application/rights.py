"""The rights (Kafka's ACLs) that an application needs: their list, whether it has them, and the commands that grant them.

`needed_rights` asks no cluster: topology and settings decide. Internal topics and transactional ids begin with
`<application id>-`, so one prefixed ACL covers all of them, including those of later versions of the program. `Describe` is never
listed: Kafka implies it with `Read`, `Write` and `Delete`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from state.errors import AuthorizationError
from state.kafka.connection import RightsProbe
from streams.application.dead_letters import replay_id, replays_topic
from streams.config import StreamsConfig
from streams.topology.graph import Failed, Graph, SourceNode
from streams.topology.plan import check_topics, internal_topics
from streams.topology.planning.sub_topologies import sub_topologies, sub_topology_name

READ, WRITE, CREATE, DELETE, DESCRIBE_CONFIGS = "Read", "Write", "Create", "Delete", "DescribeConfigs"
_PLAIN = re.compile(r"[A-Za-z0-9_-]*")


class Resource(str, Enum):
    """What a right is about, as `kafka-acls` names its options."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


@dataclass(frozen=True)
class Right:
    """Operations on one resource, or on all resources whose names begin with a prefix.

    Attributes:
        operations: The operations, as `kafka-acls` names them.
        prefixed: Whether `name` is a prefix.
    """

    resource: Resource
    name: str
    operations: tuple[str, ...]
    why: str
    prefixed: bool = False

    def __str__(self) -> str:
        what = {Resource.TRANSACTIONAL_ID: "transactional id"}.get(self.resource, self.resource.value)
        where = f"{what}s that begin with {self.name!r}" if self.prefixed else f"{what} {self.name!r}"
        return f"{', '.join(self.operations)} on {where}"


@dataclass(frozen=True)
class NeededRights:
    """The rights of one application.

    Attributes:
        rights: The rights without which it does not start, each resource once.
        internal: The names of its internal topics, at its first start.
        chosen: Whether records choose topics (`to(topic_extractor)`), which no plan knows: each needs `Write`.
    """

    application_id: str
    rights: tuple[Right, ...]
    internal: tuple[str, ...]
    dead_letters: tuple[str, ...]
    chosen: bool


def needed_rights(topology: Graph, config: StreamsConfig) -> NeededRights:
    """The rights that an application needs to run.

    Raises:
        TopologyError: There is no source, or a topic is used in contradictory ways.
    """
    check_topics(topology)
    app = config.application_id
    sources = list(topology.sources())
    groups = [
        [node for name in names if isinstance(node := topology.nodes[name], SourceNode)]
        for names in sub_topologies(topology)
    ]
    internal = internal_topics(topology, app, [sub_topology_name(group, ()) for group in groups])
    dead = {config.dead_letter_topic} if config.dead_letter_topic else set()
    dead |= {str(sink.topic) for sink in topology.sinks() if sink.failed == Failed() and isinstance(sink.topic, str)}
    written = {sink.topic for sink in topology.sinks() if isinstance(sink.topic, str)} - dead
    tables = {one.lasting_topic for one in topology.global_tables.values() if one.given is None}
    read = {topic for source in sources if source.pattern is None for topic in source.topics if isinstance(topic, str)}
    rights = [
        *(_topic(name, (READ,), "source") for name in read),
        *(_pattern(source.pattern) for source in sources if source.pattern is not None),
        *(_topic(name, (READ,), "global table") for name in tables),
        *(_topic(name, (WRITE,), "output") for name in written),
        *(_topic(name, (WRITE, DESCRIBE_CONFIGS), "dead letters") for name in dead),
        Right(
            Resource.TOPIC,
            f"{app}-",
            (CREATE, READ, WRITE, DELETE, DESCRIBE_CONFIGS),
            "changelogs, commits and repartition topics; Delete trims them",
            prefixed=True,
        ),
        Right(Resource.GROUP, app, (READ,), "offsets of the sources"),
        Right(Resource.TRANSACTIONAL_ID, f"{app}-", (WRITE,), "one transaction for each step of a task", prefixed=True),
    ]
    chosen = any(sink.topic is None for sink in topology.sinks())
    return NeededRights(app, tuple(_merged(rights)), tuple(sorted(internal)), tuple(sorted(dead)), chosen)


def operating_rights(needed: NeededRights) -> tuple[Right, ...]:
    """The further rights that `streams reset`, `dlq`, `replica` and `serve` need, for the people who operate the application.

    A replay also needs `Write` on the topics that its letters came from, most of them sources, which is left to their owners.
    """
    return (
        *(_topic(name, (READ, DELETE), "streams dlq: list, show, purge") for name in needed.dead_letters),
        *(
            _topic(
                replays_topic(name),
                (CREATE, READ, WRITE, DESCRIBE_CONFIGS),
                "streams dlq: which dead letters were replayed",
            )
            for name in needed.dead_letters
        ),
        *(
            Right(
                Resource.TRANSACTIONAL_ID,
                replay_id(name),
                (WRITE,),
                "streams dlq replay: one transaction for its letters",
            )
            for name in needed.dead_letters
        ),
        Right(Resource.GROUP, needed.application_id, (DELETE,), "streams reset"),
        Right(Resource.GROUP, f"{needed.application_id}-replicas", (READ,), "streams replica"),
        Right(Resource.GROUP, f"{needed.application_id}-serve", (READ,), "streams serve", prefixed=True),
    )


def _topic(name: str, operations: tuple[str, ...], why: str) -> Right:
    return Right(Resource.TOPIC, name, operations, why)


def _pattern(pattern: re.Pattern[str]) -> Right:
    """The right to read the topics that match a pattern. ACLs have no patterns but only prefixes."""
    found = _PLAIN.match(pattern.pattern)
    begins = found.group() if found else ""
    rest = pattern.pattern[len(begins) :]
    if rest[:1] in ("?", "*", "{"):
        # The last letter may be missing.
        begins = begins[:-1]
    if "|" in pattern.pattern or pattern.flags & re.IGNORECASE or not begins:
        return Right(Resource.TOPIC, "*", (READ,), f"sources that match {pattern.pattern}")
    return Right(Resource.TOPIC, begins, (READ,), f"sources that match {pattern.pattern}", prefixed=True)


def _merged(rights: Iterable[Right]) -> list[Right]:
    """Merges the rights on each resource: a topic may be both read and written."""
    found: dict[tuple[Resource, str, bool], Right] = {}
    for right in sorted(rights, key=lambda one: (list(Resource).index(one.resource), one.prefixed, one.name)):
        key = (right.resource, right.name, right.prefixed)
        known = found.get(key)
        operations = dict.fromkeys((*known.operations, *right.operations)) if known else right.operations
        why = f"{known.why}, {right.why}" if known else right.why
        found[key] = Right(right.resource, right.name, tuple(operations), why, right.prefixed)
    return list(found.values())


def principal_of(client: Mapping[str, str]) -> str | None:
    """The principal that brokers see; None if only the brokers know it (certificates, tokens, Kerberos)."""
    user = client.get("sasl.username")
    return f"User:{user}" if user else None


def command(right: Right, principal: str | None, bootstrap_servers: str) -> str:
    operations = [part for one in right.operations for part in ("--operation", one)]
    words = [
        *(
            "kafka-acls.sh",
            "--bootstrap-server",
            bootstrap_servers or "HOST:PORT",
            "--command-config",
            "admin.properties",
        ),
        *("--add", "--allow-principal", principal or "User:NAME", *operations, f"--{right.resource.value}", right.name),
        *(("--resource-pattern-type", "prefixed") if right.prefixed else ()),
    ]
    return shlex.join(words)


# --- The check before a start creates or writes anything
#
# A step that lacks a right would fail half-way, again and again. So everything that is missing is found at once and named, with the
# commands that grant it. What cannot be asked before the first start (`Write` and `Delete` on internal topics that do not exist
# yet) is asked as soon as the topics are created, before the first record.

_NAMES = {"READ": READ, "DESCRIBE_CONFIGS": DESCRIBE_CONFIGS, "CREATE": CREATE, "WRITE": WRITE, "DELETE": DELETE}


def check_rights(needed: NeededRights, probe: RightsProbe, client: Mapping[str, str]) -> frozenset[str]:
    """Refuses a start that would fail because a right is missing.

    Raises:
        AuthorizationError: Rights are missing; the message names all of them and the commands that grant them.
    """
    if probe.unlimited():
        return frozenset()
    topics = {right.name: right for right in needed.rights if right.resource is Resource.TOPIC and not right.prefixed}
    topics.pop("*", None)
    known = probe.operations({*topics, *needed.internal})
    missing = [lacking for name, right in topics.items() if (lacking := _lacking(right, known.get(name)))]
    group_refused, unreadable = probe.not_readable(needed.application_id, needed.internal)
    for right in needed.rights:
        if right.resource is Resource.GROUP and group_refused:
            missing.append(right)
        elif right.resource is Resource.TRANSACTIONAL_ID:
            # An id that no task has; a producer of a task's own id would be fenced.
            if not probe.may_write_transactions(f"{needed.application_id}-rights-check"):
                missing.append(right)
        elif right.name == f"{needed.application_id}-":
            missing += _lacking_internal(right, needed.internal, known, unreadable, probe)
    _refuse(f"the application {needed.application_id!r}", missing, client)
    return frozenset(needed.internal) - known.keys()


def check_created(
    needed: NeededRights, created: Collection[str], probe: RightsProbe, client: Mapping[str, str]
) -> None:
    """Checks the rights on internal topics that the start has just created, before the first record is written.

    Raises:
        AuthorizationError: Rights are missing; the topics exist and are empty.
    """
    if not created:
        return
    right = next(right for right in needed.rights if right.name == f"{needed.application_id}-" and right.prefixed)
    missing = _lacking_internal(right, created, probe.operations(created), set(), probe)
    _refuse(
        f"the application {needed.application_id!r}",
        missing,
        client,
        f"The new topics {', '.join(sorted(created))} are empty, and no record was written",
    )


def check_reset_rights(
    application_id: str, topics: Collection[str], probe: RightsProbe, client: Mapping[str, str]
) -> None:
    """Refuses a reset that would stop half-way because a right is missing, before it deletes anything.

    Raises:
        AuthorizationError: Rights are missing.
    """
    missing = _undeletable(application_id, topics, probe)
    if not probe.may_delete_group(application_id):
        missing.append(Right(Resource.GROUP, application_id, (DELETE,), "reset"))
    _refuse(f"a reset of {application_id!r}", missing, client, "Nothing was deleted")


def check_topic_deletion(
    application_id: str, topics: Collection[str], probe: RightsProbe, client: Mapping[str, str]
) -> None:
    """Refuses a deletion of internal topics without the right to it, before anything is deleted; arguments as for a reset.

    Raises:
        AuthorizationError: The right is missing.
    """
    _refuse(
        f"a reset of {application_id!r}", _undeletable(application_id, topics, probe), client, "Nothing was deleted"
    )


def _undeletable(application_id: str, topics: Collection[str], probe: RightsProbe) -> list[Right]:
    internal = Right(Resource.TOPIC, f"{application_id}-", (DELETE,), "reset", prefixed=True)
    return [internal] if any(_lacking(internal, one) for one in probe.operations(topics).values()) else []


def check_replay_rights(
    dead_letters: str, targets: Collection[str], probe: RightsProbe, client: Mapping[str, str]
) -> None:
    """Refuses a replay of dead letters without the right to write to their targets, before it sends anything.

    Raises:
        AuthorizationError: Rights are missing.
    """
    known = probe.operations(targets)
    wanted = [Right(Resource.TOPIC, name, (WRITE,), "replay") for name in sorted(targets)]
    missing = [lacking for right in wanted if (lacking := _lacking(right, known.get(right.name)))]
    _refuse(f"a replay of {dead_letters!r}", missing, client, "Nothing was sent")


def _lacking(right: Right, allowed: frozenset[str] | None) -> Right | None:
    """The missing part of a right; None if nothing is missing, or if the topic does not exist, which another check reports."""
    if allowed is None:
        return None
    lacking = tuple(
        one for one in right.operations if one != CREATE and one not in {_NAMES.get(name) for name in allowed}
    )
    return replace(right, operations=lacking) if lacking else None


def _lacking_internal(
    right: Right,
    topics: Collection[str],
    known: Mapping[str, frozenset[str]],
    unreadable: Collection[str],
    probe: RightsProbe,
) -> list[Right]:
    """The part of the right on internal topics that is missing on at least one of them."""
    lacking = {one for name in topics for one in getattr(_lacking(right, known.get(name)), "operations", ())}
    # A topic that may not even be described may be missing.
    if probe.not_creatable({name for name in topics if not known.get(name)}):
        lacking.add(CREATE)
    if unreadable:
        lacking.add(READ)
    return [replace(right, operations=tuple(one for one in right.operations if one in lacking))] if lacking else []


def _refuse(
    what: str, missing: Collection[Right], client: Mapping[str, str], done: str = "Nothing was written"
) -> None:
    if not missing:
        return
    principal = principal_of(client)
    commands = "; ".join(f"`{command(right, principal, client.get('bootstrap.servers', ''))}`" for right in missing)
    raise AuthorizationError(
        f"{principal or 'the principal of these credentials'} lacks rights that {what} needs: {'; '.join(map(str, missing))}. "
        f"{done}. Somebody who may alter ACLs can grant them with: {commands}. `streams acls` prints all rights of the application"
    )
