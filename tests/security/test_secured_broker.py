"""An application on a broker with TLS, SCRAM and ACLs: exactly the documented rights suffice, and a missing one changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from state.errors import AuthenticationError, AuthorizationError, TlsError
from state.kafka.connection import first_contact
from streams.broker import EmbeddedBroker, fetch_jars
from streams.cli.main import app as cli
from streams.driver.runner import StreamsApplication
from tests.security.secured import APPLICATION, COUNTS, DEAD, ORDERS, Secured, counts_by_country, settings, without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka

# The application's rights, in the order of `streams acls`: each is taken away once.
RIGHTS = ("counts", "customers", "dead-orders", "orders", "internal", "group", "transactions")
_LACKS = {
    "counts": "Write on topic 'counts'",
    "customers": "Read on topic 'customers'",
    "dead-orders": "Write, DescribeConfigs on topic 'dead-orders'",
    "orders": "Read on topic 'orders'",
    "internal": "Create, Read, Write, Delete, DescribeConfigs on topics that begin with 'secured-'",
    "group": "Read on group 'secured'",
    "transactions": "Write on transactional ids that begin with 'secured-'",
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One secured broker for this module, with a user for each right that is taken away."""
    fetch_jars()
    folder = tmp_path_factory.mktemp("secured")
    users = ("alice", "nobody", *(f"no-{right}" for right in RIGHTS))
    with EmbeddedBroker(folder, secured=True, users=users, die_with_parent=True, start_timeout_s=240) as broker:
        cluster = Secured(broker)
        cluster.make_topics()
        yield cluster


def refusal(secured: Secured, user: str, folder: Path) -> str:
    """What a start as this user is refused with, after which everything is as it was."""
    before = secured.topics(), secured.offsets(), secured.log_ends()
    with pytest.raises(AuthorizationError) as caught:
        StreamsApplication(counts_by_country(), settings(secured.broker.client(user), folder)).run()
    assert (secured.topics(), secured.offsets(), secured.log_ends()) == before
    assert list(folder.iterdir()) == []
    return str(caught.value)


@pytest.mark.parametrize("number", range(len(RIGHTS)), ids=RIGHTS)
def test_a_start_without_one_of_the_rights_is_refused_by_name_and_writes_nothing(
    secured: Secured, tmp_path: Path, number: int
) -> None:
    user, needed = f"no-{RIGHTS[number]}", secured.needed(tmp_path)
    assert len(needed.rights) == len(RIGHTS)
    secured.grant(user, without(needed.rights, number))
    said = refusal(secured, user, tmp_path)
    assert (
        f"User:{user} lacks rights that the application 'secured' needs: {_LACKS[RIGHTS[number]]}. Nothing was written"
        in said
    )
    (command,) = re.findall(r"`(kafka-acls\.sh [^`]*)`", said)
    assert f"--add --allow-principal User:{user} --operation" in command


def test_a_user_without_any_rights_learns_all_of_them_at_once(secured: Secured, tmp_path: Path) -> None:
    said = refusal(secured, "nobody", tmp_path)
    assert all(lacks in said for lacks in _LACKS.values())


def test_a_wrong_password_is_named_at_the_first_contact(secured: Secured, tmp_path: Path) -> None:
    client = {**secured.broker.client("alice"), "sasl.password": "wrong-secret"}
    with pytest.raises(AuthenticationError, match="'alice'") as caught:
        StreamsApplication(counts_by_country(), settings(client, tmp_path)).run()
    assert "wrong-secret" not in str(caught.value)


def test_a_client_without_tls_is_named_at_the_first_contact(secured: Secured) -> None:
    with pytest.raises(TlsError, match="that port wants TLS"):
        first_contact({"bootstrap.servers": secured.broker.bootstrap_servers}, timeout_s=60)


def test_no_password_of_a_node_is_on_a_command_line(secured: Secured) -> None:
    folder = secured.broker.data_dir / "security"
    passwords = [file.read_text() for file in folder.glob("*.password")]
    passwords += [secured.broker.client(user)["sasl.password"] for user in ("admin", "alice")]
    pids = [node.pid for node in secured.broker.status().nodes]
    lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in pids]
    assert len(passwords) == 5
    assert not any(password in line for password in passwords for line in lines)


def test_the_secrets_of_a_cluster_are_readable_by_their_owner_only(secured: Secured) -> None:
    data = secured.broker.data_dir
    assert (data / "security").stat().st_mode & 0o777 == 0o700
    files = [*(data / "security").iterdir(), data / "node-1" / "server.properties"]
    assert {file.name: file.stat().st_mode & 0o077 for file in files} == {file.name: 0 for file in files}


def test_the_rights_that_acls_grants_suffice_to_run_exactly_once_and_to_operate(
    secured: Secured, spark: SparkSession, tmp_path: Path
) -> None:
    run, target = CliRunner().invoke, "tests/security/secured.py:counts_by_country"
    files = secured.broker.data_dir / "security"
    mine = ["-a", APPLICATION, "--base-dir", str(tmp_path), "--set", f"dead_letter_topic={DEAD}"]
    granted = run(
        cli,
        [
            "acls",
            target,
            *mine,
            "--grant",
            "--principal",
            "User:alice",
            "--properties-file",
            str(files / "admin.properties"),
        ],
    )
    assert granted.exit_code == 0, granted.output
    secured.grant("alice", secured.needed(tmp_path).rights)

    config = settings(secured.broker.client("alice"), tmp_path)
    StreamsApplication(counts_by_country(), config).run(spark)
    secured.send(ORDERS, [("5", b'{"customer": "bob"}')])
    StreamsApplication(counts_by_country(), config).run(spark)

    assert secured.table(COUNTS) == {b"no": (2).to_bytes(8, "big"), b"fr": (2).to_bytes(8, "big")}
    assert list(secured.table(DEAD)) == [b"4"]
    alice = ["--properties-file", str(files / "alice.properties")]
    # The doctor says what it may not look at: the settings of brokers and of topics that are not the application's.
    for command, code in {"status": 0, "restore": 0, "doctor": 3}.items():
        done = run(cli, [command, target, *mine, *alice])
        assert done.exit_code == code, done.output
    before = secured.topics()
    done = run(cli, ["reset", "--yes", *mine, *alice])
    assert "needs: Delete on group 'secured'. Nothing was deleted" in " ".join(done.output.split()), done.output
    assert secured.topics() == before


def test_a_secured_folder_stays_secured(secured: Secured) -> None:
    from streams.broker import DataFolderError

    with pytest.raises(DataFolderError, match="a cluster with security"):
        EmbeddedBroker(secured.broker.data_dir, secured=False).start()
