"""Rights as commands of Kafka's `kafka-acls`, for people who have no tool of ours."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from streams.application.rights.needed import Right


def principal_of(client: Mapping[str, str]) -> str | None:
    """The principal as which brokers see a client; None where only the brokers know it (certificates, tokens, Kerberos)."""
    user = client.get("sasl.username")
    return f"User:{user}" if user else None


def command(right: Right, principal: str | None, bootstrap_servers: str) -> str:
    """The command that grants a right."""
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
