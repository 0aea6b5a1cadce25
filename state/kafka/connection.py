"""The first contact with a cluster, and the rights that the client's credentials have in it.

librdkafka retries forever, and reports the reason only in its background threads. Brokers that do not answer may come back, so the
client keeps waiting for them. A wrong password or certificate stays wrong, so it ends the wait.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Collection, Iterable, Sequence

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ClusterMetadata,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from state.errors import AuthenticationError, AuthorizationError, ClientFailure, KafkaClientError, TlsError
from state.kafka.config import ClientConfig, admin_config, producer_config
from state.kafka.error_mapping import TOPIC_NOT_FOUND, UNAUTHENTICATED, UNAUTHORIZED, failure_of, request_error

CONNECT_S = 10.0
"""How long a cluster may take to answer, seconds."""
_ATTEMPT_S = 0.5


def first_contact(config: ClientConfig, timeout_s: float = CONNECT_S) -> tuple[AdminClient, ClusterMetadata]:
    """Connects a client, and returns it with the cluster's metadata once the cluster has answered.

    Raises:
        AuthenticationError: The brokers do not accept the user, the password or the mechanism.
        TlsError: A certificate does not fit, or one end speaks no TLS.
        KafkaClientError: No answer in time; the message has the client's last failure.
        KafkaException: The client refuses a property.
    """
    complaints: list[KafkaError] = []
    admin = AdminClient({**admin_config(config), "error_cb": complaints.append, "log_level": "0"})
    deadline = time.monotonic() + timeout_s
    suspects_tls = not uses_tls(config)
    while True:
        try:
            return admin, admin.list_topics(timeout=min(_ATTEMPT_S, timeout_s))
        except KafkaException as exception:
            admin.poll(0)  # delivers the errors that the client has met in the background
            telling = [one for one in complaints if one.code() != KafkaError._ALL_BROKERS_DOWN]
            failure = failure_of((telling or exception.args)[-1])
            for complaint in telling:
                _raise_if_lasting(config, failure_of(complaint))
            if suspects_tls and (advice := wants_tls(config)):
                raise TlsError(f"no connection to Kafka at {config.get('bootstrap.servers')}: {advice}") from exception
            suspects_tls = False
            if time.monotonic() > deadline:
                raise _no_answer(config, failure) from exception


def _no_answer(config: ClientConfig, failure: ClientFailure) -> KafkaClientError:
    return KafkaClientError(
        f"Kafka at {config.get('bootstrap.servers')} did not answer: check that it runs, the address, and the security settings",
        failure,
    )


def _raise_if_lasting(config: ClientConfig, failure: ClientFailure) -> None:
    """Raises the named error of a failure that will not resolve itself."""
    where = f"Kafka at {config.get('bootstrap.servers')}"
    if failure.code in UNAUTHENTICATED:
        raise AuthenticationError(
            f"{where} does not accept these credentials (user {config.get('sasl.username', '-')!r}): check sasl.username, "
            f"sasl.password and sasl.mechanism",
            failure,
        )
    if failure.code == KafkaError._SSL:
        raise TlsError(f"no secure connection to {where}: {tls_advice(config)}", failure)


# --- What is wrong with a TLS connection: one handshake of our own, because librdkafka only says that its handshake failed.

_EXPIRED, _NOT_YET_VALID, _HOSTNAME, _ADDRESS = 10, 9, 62, 64
_ADVICE = {
    _EXPIRED: "its certificate has expired: have it renewed, and check this machine's clock",
    _NOT_YET_VALID: "its certificate is not valid yet: check this machine's clock, and the certificate's dates",
    _HOSTNAME: "its certificate is for another host: use an address that the certificate names",
    _ADDRESS: "its certificate is for another host: use an address that the certificate names",
}
_UNTRUSTED = "its certificate is not signed by an authority that this client trusts: check ssl.ca.location"
_NO_TLS = "that port speaks no TLS: check security.protocol and the port"
_WANTS_TLS = "that port wants TLS: set security.protocol (SASL_SSL, or SSL without users), and ssl.ca.location"
_ELSE = "check security.protocol, ssl.ca.location, and the client's certificate and key, if the brokers ask for one"
_TIMEOUT_S = 5.0


def uses_tls(config: ClientConfig) -> bool:
    """Whether these client properties ask for TLS."""
    return config.get("security.protocol", "").lower().endswith("ssl")


def tls_advice(config: ClientConfig) -> str:
    """The advice for a TLS handshake that failed."""
    for host, port in _addresses(config):
        try:
            context = ssl.create_default_context(cafile=config.get("ssl.ca.location"))
            context.check_hostname = config.get("ssl.endpoint.identification.algorithm") != "none"
            _handshake(context, host, port)
        except ssl.SSLCertVerificationError as error:
            return _ADVICE.get(error.verify_code, _UNTRUSTED)
        except ssl.SSLError as error:
            if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE"):
                return _NO_TLS
        except (OSError, ValueError):
            continue
    return _ELSE


def wants_tls(config: ClientConfig) -> str | None:
    """The advice if a client without TLS connects to a port with TLS; None if no address has TLS."""
    # Nothing is sent over this connection, so the certificate need not be checked.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for host, port in _addresses(config):
        try:
            _handshake(context, host, port)
        except OSError:
            continue
        return _WANTS_TLS
    return None


def _handshake(context: ssl.SSLContext, host: str, port: int) -> None:
    with socket.create_connection((host, port), _TIMEOUT_S) as plain, context.wrap_socket(plain, server_hostname=host):
        return


def _addresses(config: ClientConfig) -> list[tuple[str, int]]:
    """The hosts and ports in `bootstrap.servers`, without `PROTOCOL://`."""
    found = []
    for server in config.get("bootstrap.servers", "").split(","):
        host, _, port = server.strip().rpartition("://")[2].rpartition(":")
        if host and port.isdigit():
            found.append((host.strip("[]"), int(port)))
    return found


# --- Rights: asking the brokers what is allowed without doing any of it, and granting ACLs.


_NO_PARTITION = 2**31 - 1
_PROBE_TIMEOUT_MS = 10_000
_REQUEST_S = 30.0
_SILENT = logging.getLogger(f"{__name__}.silent")
"""A refusal is a fatal error of a producer, which librdkafka would print at any log level. Here it is an answer."""
_SILENT.disabled = True
_EVERYTHING = frozenset(AclOperation.__members__)


class RightsProbe:
    """Finds out what the brokers allow the credentials to do, without doing it.

    Kafka names the allowed operations on existing resources. For resources that do not exist yet, only refusals show the rights: of
    a creation that is only validated, and of an offset for a partition that no topic has. Both are refused for a missing right
    before anything else is checked, and neither changes anything.

    Args:
        config: The user's client properties.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._admin = AdminClient(admin_config(config))

    def unlimited(self) -> bool:
        """Whether everything is allowed: the cluster has no authorizer, or this is a super user."""
        future = self._admin.describe_cluster(include_authorized_operations=True, request_timeout=_REQUEST_S)
        try:
            allowed = future.result().authorized_operations or []
        except KafkaException as error:
            raise _failed("describing the cluster", error) from error
        return {"ALTER", "CLUSTER_ACTION"} <= {one.name for one in allowed}

    def operations(self, topics: Collection[str]) -> dict[str, frozenset[str]]:
        """Topic -> the allowed operations, such as `READ`; missing topics are left out. Without `DESCRIBE`, nothing is allowed."""
        if not topics:
            return {}
        futures = self._admin.describe_topics(
            TopicCollection(sorted(topics)), include_authorized_operations=True, request_timeout=_REQUEST_S
        )
        found: dict[str, frozenset[str]] = {}
        for name, future in futures.items():
            try:
                allowed = future.result().authorized_operations
                # Credentials that may describe a topic have at least that right. These brokers name none, so all is allowed here.
                found[name] = frozenset(one.name for one in allowed) if allowed else _EVERYTHING
            except KafkaException as error:
                code = error.args[0].code()
                if code in UNAUTHORIZED:
                    found[name] = frozenset()
                elif code not in TOPIC_NOT_FOUND:
                    raise _failed(f"describing topic {name!r}", error) from error
        return found

    def not_creatable(self, topics: Iterable[str]) -> set[str]:
        new = [NewTopic(name, 1, 1) for name in sorted(topics)]
        if not new:
            return set()
        futures = self._admin.create_topics(new, validate_only=True, request_timeout=_REQUEST_S)
        # Any other failure, such as a policy of the cluster's, is for the creation itself to report.
        return {name for name, future in futures.items() if _refused(future.exception())}

    def not_readable(self, group: str, topics: Iterable[str]) -> tuple[bool, set[str]]:
        """Whether committing the group's offsets is not allowed; and, if it is allowed, the topics that may not be read."""
        places = [TopicPartition(name, _NO_PARTITION, 0) for name in sorted(topics)]
        asked = [ConsumerGroupTopicPartitions(group, places)]
        (future,) = self._admin.alter_consumer_group_offsets(asked, request_timeout=_REQUEST_S).values()
        try:
            answers = future.result().topic_partitions
        except KafkaException as error:
            if _group_refused(error):
                return True, set()
            if _refused(error):
                return False, {place.topic for place in places}
            # Other failures have nothing to do with rights: for example, a group with members refuses offsets from outside.
            return False, set()
        refused = [place for place in answers if place.error is not None and place.error.code() in UNAUTHORIZED]
        if any(place.error.name() == "GROUP_AUTHORIZATION_FAILED" for place in refused):
            return True, set()
        return False, {place.topic for place in refused}

    def may_delete_group(self, group: str) -> bool:
        """Whether a consumer group may be deleted; True if the group does not exist.

        Raises:
            KafkaClientError: The brokers did not answer that.
        """
        futures = self._admin.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=_REQUEST_S
        )
        try:
            allowed = futures[group].result().authorized_operations
        except KafkaException as error:
            if _refused(error):
                return False
            if error.args[0].name() == "GROUP_ID_NOT_FOUND":
                return True
            raise _failed(f"describing consumer group {group!r}", error) from error
        return not allowed or "DELETE" in {one.name for one in allowed}

    def may_write_transactions(self, transactional_id: str) -> bool:
        """Whether a producer may use a transactional id. The id must not be in use, since its other producer would be fenced.

        Raises:
            KafkaClientError: The brokers did not answer that.
        """
        # confluent-kafka handles the last property itself and expects a bool.
        own = {"delivery.report.only.error": False, "logger": _SILENT}
        producer = Producer({**producer_config(self._config, transactional_id, _PROBE_TIMEOUT_MS), **own})
        try:
            producer.init_transactions(_REQUEST_S)
        except KafkaException as error:
            if _refused(error):
                return False
            raise _failed(f"asking for transactional id {transactional_id!r}", error) from error
        return True


def _refused(error: BaseException | None) -> bool:
    if not isinstance(error, KafkaException):
        return False
    cause = error.args[0]
    # A producer's fatal error may have a code of its own, with the broker's reason in its text.
    return cause.code() in UNAUTHORIZED or (cause.fatal() and "authorization failed" in cause.str().lower())


def _group_refused(error: KafkaException) -> bool:
    return bool(error.args[0].name() == "GROUP_AUTHORIZATION_FAILED")


def _failed(what: str, error: KafkaException) -> KafkaClientError:
    return request_error(what, "check the brokers and the rights", failure_of(error.args[0]))


# --- Grants rights: creates the ACLs of a principal with the client of somebody who may alter ACLs.

_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


def grant_rights(config: ClientConfig, principal: str, rights: Iterable[tuple[str, str, bool, Sequence[str]]]) -> int:
    """Creates ACLs; existing ones stay as they are. Returns the number of ACLs.

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
    """The client's name of an operation: `DescribeConfigs` is its `DESCRIBE_CONFIGS`."""
    return AclOperation["".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name)[1:]]
