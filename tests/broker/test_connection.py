"""Client properties from options and Java properties files."""

import os
from pathlib import Path

import pytest

from streams.broker.cluster import ClusterRecord, NodeRecord
from streams.broker.jars import KAFKA_VERSION
from streams.broker.processes import ProcessId, started_at
from streams.broker.secure import parse_java_properties
from streams.cli.options import client_properties, printable, with_embedded_default
from streams.errors import ConfigError

JAVA_FILE = r"""
# a comment
! another
bootstrap.servers=one:9092,two:9092
sasl.username : alice
sasl.password = a=b:c \
    and more
ssl.ca.location\:x  C\:\\certs\t\u0041
empty=
blank
"""


def test_java_properties_are_read_as_java_reads_them() -> None:
    assert parse_java_properties(JAVA_FILE) == {
        "bootstrap.servers": "one:9092,two:9092",
        "sasl.username": "alice",
        "sasl.password": "a=b:c and more",
        "ssl.ca.location:x": "C:\\certs\tA",
        "empty": "",
        "blank": "",
    }


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=file\nlinger.ms=1\n")
    assert client_properties("option:1", ["client.id=property=1"], file) == {
        "bootstrap.servers": "option:1",
        "client.id": "property=1",
        "linger.ms": "1",
    }
    assert client_properties(None, None, file)["bootstrap.servers"] == "file:1"
    assert client_properties(None, None, None) == {}


def test_a_property_without_a_key_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigError, match="KEY=VALUE") as caught:
        client_properties(None, ["my-secret"], None)
    assert "my-secret" not in str(caught.value)


def test_a_missing_properties_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        client_properties(None, None, tmp_path / "missing")


def test_a_damaged_properties_file_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text(r"a=\u12")
    with pytest.raises(ConfigError, match="four hexadecimal digits"):
        client_properties(None, None, bad)


def test_without_a_cluster_the_option_that_names_one_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--bootstrap-servers"):
        with_embedded_default({}, tmp_path)


def test_a_secured_embedded_broker_asks_for_a_user(tmp_path: Path) -> None:
    process = ProcessId(os.getpid(), started_at(os.getpid()) or "")
    ClusterRecord("id", KAFKA_VERSION, (NodeRecord(1, 9092, 9093, process),), {}, secured=True).save(tmp_path)
    with pytest.raises(
        ConfigError, match=r"is secured, so a user is needed: --properties-file .*/security/USER\.properties"
    ):
        with_embedded_default({}, tmp_path)
    client = with_embedded_default({"security.protocol": "SASL_SSL"}, tmp_path)
    assert client == {"security.protocol": "SASL_SSL", "bootstrap.servers": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    "key",
    ["sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "ssl.key.pem"],
)
def test_secrets_are_masked(key: str) -> None:
    line = printable({key: "hidden", "client.id": "me"})
    assert "hidden" not in line
    assert key in line
    assert "client.id=me" in line
