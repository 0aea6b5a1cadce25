"""The first contact with a cluster: it answers, or one named error says within seconds why it never will.

librdkafka tries again for ever, whatever the reason, and only its background threads know the reason. A wrong password or a
certificate that does not fit will not pass, so those end the wait; brokers that are away may come back.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from state.errors import AuthenticationError, ClientFailure, KafkaClientError, TlsError
from state.kafka.config import ClientConfig, admin_config
from state.kafka.error_mapping import UNAUTHENTICATED, failure_of
from state.kafka.tls import tls_advice, uses_tls, wants_tls

CONNECT_S = 10.0
"""How long a cluster may take to answer, seconds."""
_ATTEMPT_S = 0.5


def first_contact(config: ClientConfig, timeout_s: float = CONNECT_S) -> tuple[AdminClient, ClusterMetadata]:
    """A client that has received an answer, and the cluster's metadata.

    Raises:
        AuthenticationError: The brokers do not accept the user, the password or the mechanism.
        TlsError: A certificate does not fit, or one end speaks no TLS.
        KafkaClientError: No answer in time; the failure is the last that the client has met.
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


def check_connection(config: ClientConfig, timeout_s: float = CONNECT_S) -> None:
    """Checks that the cluster answers these credentials; see `first_contact` for what it raises."""
    first_contact(config, timeout_s)


def _no_answer(config: ClientConfig, failure: ClientFailure) -> KafkaClientError:
    return KafkaClientError(
        f"Kafka at {config.get('bootstrap.servers')} did not answer: check that it runs, the address, and the security settings",
        failure,
    )


def _raise_if_lasting(config: ClientConfig, failure: ClientFailure) -> None:
    """Raises the named error of a failure that will not pass."""
    where = f"Kafka at {config.get('bootstrap.servers')}"
    if failure.code in UNAUTHENTICATED:
        raise AuthenticationError(
            f"{where} does not accept these credentials (user {config.get('sasl.username', '-')!r}): check sasl.username, "
            f"sasl.password and sasl.mechanism",
            failure,
        )
    if failure.code == KafkaError._SSL:
        raise TlsError(f"no secure connection to {where}: {tls_advice(config)}", failure)
