"""`streams acls`: prints the rights of an application, without a cluster."""

import json

from tests.cli.conftest import Command


def test_acls_prints_commands_without_any_cluster(streams: Command) -> None:
    program = "tests.security.secured:counts_by_country"
    result = streams("acls", program, "-a", "secured", "-f", "commands", "--principal", "User:bob")
    lines = result.output.splitlines()
    assert len(lines) == 6
    assert lines[0] == (
        "kafka-acls.sh --bootstrap-server HOST:PORT --command-config admin.properties --add --allow-principal User:bob "
        "--operation Write --topic counts"
    )


def test_acls_refuses_a_principal_without_type(streams: Command) -> None:
    result = streams("acls", "tests.security.secured:counts_by_country", "--principal", "bob")
    assert result.exit_code == 1
    assert "User:alice" in result.output


def test_acls_prints_json_for_programs(streams: Command) -> None:
    result = streams(
        "acls", "tests.security.secured:counts_by_country", "-a", "secured", "-f", "json", "-X", "sasl.username=ann"
    )
    found = json.loads(result.output)
    assert found["principal"] == "User:ann"
    assert found["rights"][-1] == {
        "resource": "transactional-id",
        "name": "secured-",
        "pattern": "prefixed",
        "operations": ["Write"],
        "for": "one transaction for each step of a task",
    }


def test_a_grant_needs_a_principal(streams: Command) -> None:
    result = streams("acls", "tests.security.secured:counts_by_country", "--grant", "-b", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "--grant needs --principal" in result.output
