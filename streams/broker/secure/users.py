"""SCRAM users of a running secured cluster: made by its admin, each with a client properties file of their own."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from state.errors import AuthenticationError
from state.kafka.config import admin_config
from state.kafka.connection import check_connection
from streams.broker.errors import BrokerError
from streams.broker.secure.security import ADMIN, ITERATIONS, Security

_REQUEST_S = 30.0


def write_clients(security: Security, bootstrap_servers: str, users: tuple[str, ...]) -> list[Path]:
    """Writes the client properties files of the admin, of new users, and of known ones whose cluster has another address now."""
    admin = security.client(ADMIN, bootstrap_servers)
    security.write_client(ADMIN, admin)
    for file in security.files():
        known = security.written_client(file.stem)
        if known is not None and known.get("bootstrap.servers") != bootstrap_servers:
            security.write_client(file.stem, {**known, "bootstrap.servers": bootstrap_servers})
    for user in users:
        if security.written_client(user) is None:
            password = security.new_password()
            _set_password(admin, user, password)
            client = security.client(user, bootstrap_servers, password)
            _await_login(client)
            security.write_client(user, client)
    return security.files()


def _set_password(admin: dict[str, str], user: str, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    wanted = UserScramCredentialUpsertion(user, info, password.encode())
    client = AdminClient(admin_config(admin))
    (future,) = client.alter_user_scram_credentials([wanted], request_timeout=_REQUEST_S).values()
    try:
        future.result()
    except KafkaException as error:
        raise BrokerError(f"the user {user!r} could not be made: {error.args[0].str()}") from error


def _await_login(client: dict[str, str]) -> None:
    """Waits until the cluster knows a new user: its nodes learn it a moment after the controller has answered."""
    deadline = time.monotonic() + _REQUEST_S
    while True:
        try:
            check_connection(client)
            return
        except AuthenticationError:
            if time.monotonic() > deadline:
                raise
