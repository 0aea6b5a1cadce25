"""`Security`: the secrets of one secured cluster, and what its nodes and clients are configured with.

Clients connect with TLS and SCRAM-SHA-512. Two users exist from the first start, because SCRAM users are records in the
cluster's metadata: `broker`, as which the nodes talk to each other, and `admin`, who may do everything. Controllers know each
other by their certificate, since no SCRAM user is known before the metadata is.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from state.tables.private_folder import make_private, write_private
from streams.broker.errors import DataFolderError
from streams.broker.java_properties import parse_java_properties
from streams.broker.secure.certificates import NODE_PRINCIPAL, Certificates

MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 8192
ADMIN, _NODES = "admin", "broker"
_FOLDER = "security"
_SECRET_BYTES = 24


@dataclass(frozen=True, slots=True)
class Security:
    """The secrets of a cluster, in a folder that only its owner can read.

    Attributes:
        folder: The folder.
    """

    folder: Path

    @classmethod
    def of(cls, data_dir: Path) -> Security:
        """The security of the cluster in a data folder, whether made or not."""
        return cls(data_dir.absolute() / _FOLDER)

    @property
    def certificates(self) -> Certificates:
        return Certificates(self.folder)

    def make(self) -> None:
        """Makes certificates and passwords, unless they exist."""
        if self._passwords(_NODES).exists():
            return
        make_private(self.folder)
        write_private(self.certificates.password_file, secrets.token_hex(_SECRET_BYTES).encode())
        self.certificates.make()
        write_private(self._passwords(ADMIN), secrets.token_hex(_SECRET_BYTES).encode())
        # Last, because its existence says that everything is there.
        write_private(self._passwords(_NODES), secrets.token_hex(_SECRET_BYTES).encode())

    def format_arguments(self) -> str:
        """The arguments of `kafka-storage format` that create the first users, one argument on each line."""
        users = ((name, self._password(name)) for name in (_NODES, ADMIN))
        return "".join(f"--add-scram\n{MECHANISM}=[name={name},password={password}]\n" for name, password in users)

    def server_properties(self, port: int, controller_port: int, host: str) -> dict[str, str]:
        """The settings of a node; they replace those of a cluster without security."""
        certificates = self.certificates
        login = f'username="{_NODES}" password="{self._password(_NODES)}"'
        return {
            "listeners": f"SASL_SSL://{host}:{port},CONTROLLER://{host}:{controller_port}",
            "advertised.listeners": f"SASL_SSL://{host}:{port}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                f"org.apache.kafka.common.security.scram.ScramLoginModule required {login};"
            ),
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(certificates.node_keys),
            "ssl.keystore.password": certificates.password_file.read_text(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.authority),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{_NODES};User:{ADMIN};User:{NODE_PRINCIPAL}",
        }

    def client(self, user: str, bootstrap_servers: str, password: str | None = None) -> dict[str, str]:
        """The client properties of a user."""
        return {
            "bootstrap.servers": bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self._password(ADMIN) if password is None else password,
            "ssl.ca.location": str(self.certificates.authority),
        }

    def properties_file(self, user: str) -> Path:
        """The client properties file of a user, whether it exists or not.

        Raises:
            DataFolderError: The name cannot be that of a file.
        """
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", user):
            raise DataFolderError(f"{user!r} cannot be a user's name here: take letters, digits, '.', '_' and '-'")
        return self.folder / f"{user}.properties"

    def write_client(self, user: str, client: Mapping[str, str]) -> Path:
        """Writes the client properties file of a user, as Kafka's own tools and librdkafka read it."""
        path = self.properties_file(user)
        write_private(path, "".join(f"{key}={value}\n" for key, value in client.items()).encode())
        return path

    def written_client(self, user: str) -> dict[str, str] | None:
        """The properties in a user's file; None if there is no such file."""
        path = self.properties_file(user)
        return parse_java_properties(path.read_text(encoding="utf-8")) if path.exists() else None

    def new_password(self) -> str:
        """A password that nobody can guess."""
        return secrets.token_hex(_SECRET_BYTES)

    def files(self) -> list[Path]:
        """The client properties files of all users."""
        return sorted(self.folder.glob("*.properties"))

    def _passwords(self, user: str) -> Path:
        return self.folder / f"{user}.password"

    def _password(self, user: str) -> str:
        return self._passwords(user).read_text()


@contextmanager
def first_users(security: Security | None) -> Iterator[tuple[str, ...]]:
    """The arguments with which a node's storage is formatted, besides the usual ones: a file that exists within the context.

    A file, because an argument of a command would show the passwords to every user of the machine.
    """
    if security is None:
        yield ()
        return
    file = security.folder / "format.arguments"
    write_private(file, security.format_arguments().encode())
    try:
        yield (f"@{file}",)
    finally:
        file.unlink()
