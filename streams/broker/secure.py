"""A secured cluster: TLS with certificates from its own authority, SASL/SCRAM users, and ACLs that deny by default.

`<data folder>/security` has the authority, the nodes' certificate, and one client properties file for each user. Only its owner
can read the folder, and no password appears on a command line.

Clients connect with TLS and SCRAM-SHA-512. Two users exist from the first start, because SCRAM users are records in the
cluster's metadata: `broker`, as which the nodes talk to each other, and `admin`, who may do everything. Controllers know each
other by their certificate, since no SCRAM user is known before the metadata is.
"""

from __future__ import annotations

import re
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
from state.kafka.connection import first_contact
from state.tables.files import make_private, write_private
from streams.broker.jars import find_java
from streams.broker.processes import HOST
from streams.errors import BrokerError, BrokerStartError, DataFolderError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY_END = re.compile(r"(?<!\\)(?:\\\\)*([\s=:])")


def parse_java_properties(text: str) -> dict[str, str]:
    r"""Parses a Java properties file as `java.util.Properties.load` does, so that files for Kafka's tools work unchanged.

    Comments start with `#` or `!`; the key ends at the first `=`, `:` or blank
    that is not escaped; a backslash at the end of a line joins it with the next; `\uXXXX`, `\t`, `\n`, `\r` and `\f`
    are escapes.

    Raises:
        ValueError: A `\u` escape without four hexadecimal digits.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _KEY_END.search(line)
        key = line if end is None else line[: end.start(1)]
        rest = "" if end is None else line[end.start(1) :].lstrip()
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip()
        properties[_unescape(key)] = _unescape(rest)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Joins continued lines, and drops comments and empty lines."""
    joined = ""
    for natural in text.splitlines():
        line = natural.lstrip()
        if not joined and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
        else:
            yield joined + line
            joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        escape = match.group(1)
        if escape[0] != "u":
            return _ESCAPES.get(escape, escape)
        if len(escape) != 5:
            raise ValueError(f"'\\{escape}' needs four hexadecimal digits")
        return chr(int(escape[1:], 16))

    return re.sub(r"\\(u[0-9a-fA-F]{0,4}|.)", replaced, text)


_AUTHORITY, _NODE = "ca", "broker"
NODE_PRINCIPAL = "CN=streams-broker"
"""The subject of the nodes' certificate, by which controllers know them."""
_DAYS = "3650"
_TIMEOUT_S = 120.0
_KEY = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", _DAYS)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates in a folder, made by Java's `keytool`: an authority, and one certificate for all nodes.

    `keytool` comes with every Java, so no further program or library is needed. Passwords are passed as files (`-storepass:file`),
    because a command line can be read by every user of the machine.
    """

    folder: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate, which clients must trust (PEM)."""
        return self.folder / "ca.pem"

    @property
    def authority_keys(self) -> Path:
        """The key store of the authority, which signs certificates (PKCS 12)."""
        return self.folder / "ca.p12"

    @property
    def node_keys(self) -> Path:
        return self.folder / "broker.p12"

    @property
    def password_file(self) -> Path:
        """The password of both key stores."""
        return self.folder / "keystore.password"

    def make(self) -> None:
        """Makes all certificates; the folder and the password file exist.

        Raises:
            BrokerStartError: `keytool` failed.
        """
        keys = ("-keystore", str(self.authority_keys), "-storetype", "PKCS12")
        signs = ("-ext", "bc:critical=ca:true", "-ext", "ku:critical=keyCertSign,cRLSign")
        self._keytool("-genkeypair", "-alias", _AUTHORITY, "-dname", "CN=streams-ca", *_KEY, *signs, *keys)
        names = ("-ext", f"san=ip:{HOST},dns:localhost")
        self._keytool(
            "-genkeypair", "-alias", _NODE, "-signer", _AUTHORITY, "-dname", NODE_PRINCIPAL, *_KEY, *names, *keys
        )
        password = str(self.password_file)
        source = ("-srckeystore", str(self.authority_keys), "-srcalias", _NODE, "-srcstorepass:file", password)
        to = ("-destkeystore", str(self.node_keys), "-deststoretype", "PKCS12", "-deststorepass:file", password)
        self._run("-importkeystore", *source, *to, "-noprompt")
        self._keytool("-exportcert", "-rfc", "-alias", _AUTHORITY, "-file", str(self.authority), *keys)

    def _keytool(self, *arguments: str) -> None:
        self._run(*arguments, "-storepass:file", str(self.password_file))

    def _run(self, *arguments: str) -> None:
        java = find_java()
        keytool = java.with_name("keytool") if java.is_absolute() else "keytool"
        command = [str(keytool), "-J-XX:TieredStopAtLevel=1", *arguments]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
                umask=0o077,
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            raise BrokerStartError(
                f"{keytool} could not be run ({error.strerror}): it comes with Java, and makes the certificates of a secured broker"
            ) from error
        if done.returncode != 0:
            raise BrokerStartError(f"{keytool} {arguments[0]} failed: {(done.stdout + done.stderr).strip()}")


MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 8192
ADMIN, _NODES = "admin", "broker"
_FOLDER = "security"
_SECRET_BYTES = 24


@dataclass(frozen=True, slots=True)
class ClusterSecrets:
    """The secrets of a cluster, in a folder that only its owner can read."""

    folder: Path

    @classmethod
    def of(cls, data_dir: Path) -> ClusterSecrets:
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
        # Written last, because its existence shows that everything is there.
        write_private(self._passwords(_NODES), secrets.token_hex(_SECRET_BYTES).encode())

    def format_arguments(self) -> str:
        """The arguments of `kafka-storage format` that create the first users, one argument on each line."""
        users = ((name, self._password(name)) for name in (_NODES, ADMIN))
        return "".join(f"--add-scram\n{MECHANISM}=[name={name},password={password}]\n" for name, password in users)

    def server_properties(self, port: int, controller_port: int, host: str) -> dict[str, str]:
        """The settings of a node, which replace the settings of a cluster without security."""
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
        return {
            "bootstrap.servers": bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self._password(ADMIN) if password is None else password,
            "ssl.ca.location": str(self.certificates.authority),
        }

    def properties_file(self, user: str) -> Path:
        """The client properties file of a user, whether it exists or not."""
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

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.properties"))

    def _passwords(self, user: str) -> Path:
        return self.folder / f"{user}.password"

    def _password(self, user: str) -> str:
        return self._passwords(user).read_text()


@contextmanager
def first_users(security: ClusterSecrets | None) -> Iterator[tuple[str, ...]]:
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


_REQUEST_S = 30.0


def write_clients(security: ClusterSecrets, bootstrap_servers: str, users: tuple[str, ...]) -> list[Path]:
    """Writes the client properties files of the admin, of new users, and of known ones whose cluster has another address now."""
    admin = security.client(ADMIN, bootstrap_servers)
    security.write_client(ADMIN, admin)
    for file in security.files():
        known = security.written_client(file.stem)
        if known is not None and known.get("bootstrap.servers") != bootstrap_servers:
            security.write_client(file.stem, {**known, "bootstrap.servers": bootstrap_servers})
    for user in users:
        if security.written_client(user) is None:
            password = secrets.token_hex(_SECRET_BYTES)
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
            first_contact(client)
            return
        except AuthenticationError:
            if time.monotonic() > deadline:
                raise
