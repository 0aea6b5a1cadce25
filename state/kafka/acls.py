"""Grants rights: creates the ACLs of a principal with the client of somebody who may alter ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from state.errors import AuthorizationError
from state.kafka.config import ClientConfig, admin_config
from state.kafka.error_mapping import UNAUTHORIZED, failure_of, request_error

_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_REQUEST_S = 30.0


def grant_rights(config: ClientConfig, principal: str, rights: Iterable[tuple[str, str, bool, Sequence[str]]]) -> int:
    """Creates ACLs; those that exist already stay as they are.

    Args:
        config: Client properties of somebody who may alter ACLs.
        principal: Who shall have the rights, such as `User:alice`.
        rights: Kind of resource (`topic`, `group`, `transactional-id`), its name, whether that is only the beginning of names,
            and the operations as `kafka-acls` names them.

    Returns:
        The number of ACLs.

    Raises:
        AuthorizationError: This client may not alter ACLs.
        KafkaClientError: The brokers refused, for example because they have no authorizer.
    """
    wanted = [
        AclBinding(
            _TYPES[kind],
            name,
            ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
            principal,
            "*",
            _operation(operation),
            AclPermissionType.ALLOW,
        )
        for kind, name, prefixed, operations in rights
        for operation in operations
    ]
    client = AdminClient(admin_config(config))
    for future in client.create_acls(wanted, request_timeout=_REQUEST_S).values():
        try:
            future.result()
        except KafkaException as error:
            what, failure = f"granting rights to {principal!r}", failure_of(error.args[0])
            if failure.code in UNAUTHORIZED:
                raise AuthorizationError(
                    f"{what} failed: these credentials may not alter ACLs, which needs Alter on the cluster; name those of an "
                    f"administrator (--properties-file)",
                    failure,
                ) from error
            raise request_error(what, "check that the brokers have an authorizer", failure) from error
    return len(wanted)


def _operation(name: str) -> AclOperation:
    """`DescribeConfigs` as the client's `DESCRIBE_CONFIGS`."""
    return AclOperation["".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name)[1:]]
