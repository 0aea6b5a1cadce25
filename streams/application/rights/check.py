"""The check of an application's rights, before its start creates or writes anything.

A step that lacks a right would fail half-way, again and again. All that is missing is therefore found at once and named with the
commands that grant it. What the brokers cannot be asked, because it does not exist yet (`Write` and `Delete` on an internal topic
before the first start), is asked as soon as the topics are created, before the first record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from state.errors import AuthorizationError
from streams.application.rights.commands import command, principal_of
from streams.application.rights.needed import (
    CREATE,
    DELETE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
    NeededRights,
    Resource,
    Right,
)

_NAMES = {"READ": READ, "DESCRIBE_CONFIGS": DESCRIBE_CONFIGS, "CREATE": CREATE, "WRITE": WRITE, "DELETE": DELETE}


class OperationsProbe(Protocol):
    """What a replay asks of `state.kafka.rights.RightsProbe`."""

    def operations(self, topics: Collection[str]) -> Mapping[str, frozenset[str]]:
        """The allowed operations on those topics that exist."""


class ResetProbe(OperationsProbe, Protocol):
    """What a reset asks of it."""

    def may_delete_group(self, group: str) -> bool:
        """Whether a consumer group may be deleted, if it exists."""


class Probe(Protocol):
    """The part of `state.kafka.rights.RightsProbe` that this module needs."""

    def unlimited(self) -> bool: ...

    def operations(self, topics: Collection[str]) -> Mapping[str, frozenset[str]]:
        """The allowed operations on those topics that exist."""

    def not_creatable(self, topics: Iterable[str]) -> set[str]: ...

    def not_readable(self, group: str, topics: Iterable[str]) -> tuple[bool, set[str]]:
        """Whether the group may not commit, and those of some topics that may not be read."""

    def may_write_transactions(self, transactional_id: str) -> bool:
        """Whether a producer may use a transactional id."""


def check_rights(needed: NeededRights, probe: Probe, client: Mapping[str, str]) -> frozenset[str]:
    """Refuses a start that would fail for want of a right.

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


def check_created(needed: NeededRights, created: Collection[str], probe: Probe, client: Mapping[str, str]) -> None:
    """Checks the rights on internal topics that the start has just created, before the first record is written.

    Raises:
        AuthorizationError: As of `check_rights`; the topics exist and are empty.
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
    application_id: str, topics: Collection[str], probe: ResetProbe, client: Mapping[str, str]
) -> None:
    """Refuses a reset that would stop half-way for want of a right, before it deletes anything.

    Raises:
        AuthorizationError: Rights are missing.
    """
    missing = _undeletable(application_id, topics, probe)
    if not probe.may_delete_group(application_id):
        missing.append(Right(Resource.GROUP, application_id, (DELETE,), "reset"))
    _refuse(f"a reset of {application_id!r}", missing, client, "Nothing was deleted")


def check_topic_deletion(
    application_id: str, topics: Collection[str], probe: ResetProbe, client: Mapping[str, str]
) -> None:
    """Refuses to delete internal topics that may not be deleted, before anything is deleted; arguments as for a reset.

    Raises:
        AuthorizationError: The right is missing.
    """
    _refuse(
        f"a reset of {application_id!r}", _undeletable(application_id, topics, probe), client, "Nothing was deleted"
    )


def _undeletable(application_id: str, topics: Collection[str], probe: ResetProbe) -> list[Right]:
    internal = Right(Resource.TOPIC, f"{application_id}-", (DELETE,), "reset", prefixed=True)
    return [internal] if any(_lacking(internal, one) for one in probe.operations(topics).values()) else []


def check_replay_rights(
    dead_letters: str, targets: Collection[str], probe: OperationsProbe, client: Mapping[str, str]
) -> None:
    """Refuses a replay of dead letters that may not be written where they are to go, before it sends anything.

    Raises:
        AuthorizationError: Rights are missing.
    """
    known = probe.operations(targets)
    wanted = [Right(Resource.TOPIC, name, (WRITE,), "replay") for name in sorted(targets)]
    missing = [lacking for right in wanted if (lacking := _lacking(right, known.get(right.name)))]
    _refuse(f"a replay of {dead_letters!r}", missing, client, "Nothing was sent")


def _lacking(right: Right, allowed: frozenset[str] | None) -> Right | None:
    """The part of a right that is missing; None if nothing is, or if the topic does not exist, which another check reports."""
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
    probe: Probe,
) -> list[Right]:
    """The part of the right on internal topics that is missing on any of them."""
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
        f"{done}. Somebody who may alter ACLs grants them with: {commands}. `streams acls` prints all rights of the application"
    )
