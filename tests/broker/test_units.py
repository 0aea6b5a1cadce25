"""Client properties from options and Java properties files."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from streams.broker import JarFetchError, JarsMissingError, JavaError, fetch_jars
from streams.broker.cluster import ClusterRecord, NodeRecord, RequestedCluster
from streams.broker.jars import DELTA_JARS, KAFKA_VERSION, class_path, find_java, is_complete, jar_dir, write_manifest
from streams.broker.processes import ProcessId, started_at
from streams.broker.secure import parse_java_properties
from streams.cli.options import client_properties, printable, with_embedded_default
from streams.errors import ConfigError, DataFolderError

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


# --- What a start of the embedded broker asks for, without any broker.

EXISTING = ClusterRecord("id", KAFKA_VERSION, (NodeRecord(1, 9092, 9093),), {"num.io.threads": "2"})


@pytest.mark.parametrize(("nodes", "ports"), [(2, None), (0, None), (3, (1, 2)), (1, (1, 2, 3))])
def test_a_number_of_nodes_that_is_no_cluster_or_does_not_fit_the_ports_is_refused(
    nodes: int, ports: Sequence[int] | None
) -> None:
    with pytest.raises(ValueError, match="nodes"):
        RequestedCluster(ports, nodes)


def test_a_new_cluster_has_an_id_and_ports_of_its_own() -> None:
    first, second = RequestedCluster(nodes=3, secured=True).new(), RequestedCluster(ports=[19092]).new()
    assert len({port for node in first.nodes for port in (node.port, node.controller_port)}) == 6
    assert (first.secured, second.secured) == (True, False)
    assert [node.port for node in second.nodes] == [19092]
    assert first.cluster_id != second.cluster_id


def test_what_is_not_asked_for_stays_as_it_is() -> None:
    assert RequestedCluster().applied_to(EXISTING, Path("x")) == EXISTING
    changed = RequestedCluster(ports=[19092], properties={"a": "b"}).applied_to(EXISTING, Path("x"))
    assert (changed.nodes, changed.properties) == ((NodeRecord(1, 19092, 9093),), {"a": "b"})
    assert changed.cluster_id == EXISTING.cluster_id


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (RequestedCluster(nodes=3), r"1 node\(s\), not 3"),
        (RequestedCluster(secured=True), "without security"),
        (RequestedCluster(ports=[1, 2, 3]), r"3 port\(s\) are given"),
    ],
)
def test_a_cluster_that_a_start_cannot_change_is_refused(requested: RequestedCluster, message: str) -> None:
    with pytest.raises(DataFolderError, match=message):
        requested.applied_to(EXISTING, Path("x"))


# --- What is said when Java or the jars are missing, and that half a set of jars is never used.

SCRIPT = Path(__file__).parents[2] / "scripts" / "check-prerequisites.sh"


def _fake_java(home: Path, script: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)


OLD_JAVA = """echo 'java version "1.8.0_402"' >&2"""


@pytest.mark.parametrize(
    ("script", "told"),
    [(None, "was not found"), (OLD_JAVA, "Java 8 .* too old"), ("exit 1", "failed"), ("echo hello", "no version")],
)
def test_missing_or_old_java_is_reported(
    script: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script is not None:
        _fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=f"(?s){told}.*Java 17 or newer.*JAVA_HOME"):
        find_java()


def test_the_setup_script_tells_what_is_missing(tmp_path: Path) -> None:
    _fake_java(tmp_path, OLD_JAVA)
    # A PATH with the script's few tools and no Python at all.
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sed", "head"):
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    environment = {"PATH": str(tools), "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(["/bin/sh", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Python 3.10 or newer is needed" in done.stderr
    assert "Java 1.8.0_402" in done.stderr
    assert "too old" in done.stderr


def test_the_setup_script_names_a_python(tmp_path: Path) -> None:
    _fake_java(tmp_path, """echo 'openjdk version "21" 2023-09-19' >&2""")
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run([str(SCRIPT)], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("python3")


def test_an_incomplete_set_of_jars_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMS_CACHE_DIR", str(tmp_path))
    with pytest.raises(JarsMissingError, match="streams broker fetch"):
        class_path()
    jar_dir().mkdir()
    jar = jar_dir() / "kafka.jar"
    jar.write_bytes(b"12345")
    assert not is_complete(jar_dir())  # not yet declared whole
    write_manifest(jar_dir())
    assert is_complete(jar_dir())
    jar.write_bytes(b"123")
    assert not is_complete(jar_dir())


def test_a_failed_fetch_tells_how_to_go_on_and_leaves_no_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = """case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2;;"""
    _fake_java(tmp_path / "java", f"{version} *) echo 'SERVER ERROR: Bad Gateway'; exit 1;; esac")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("STREAMS_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(JarFetchError, match=r"(?s)-Dhttps\.proxyHost.*Bad Gateway"):
        fetch_jars()
    assert not jar_dir().exists()


def test_a_fetch_leaves_out_what_the_session_has_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = """case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2;;"""
    # What Ivy is asked for, in its file beside the target.
    keep = f'for last; do :; done; cp "$(dirname "$last")/ivy.xml" {tmp_path}/asked.xml; exit 1'
    _fake_java(tmp_path / "java", f"{version} *) {keep};; esac")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("STREAMS_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(JarFetchError, match=r"The jars of Delta Lake .* could not be fetched"):
        fetch_jars(jars=DELTA_JARS)
    asked = (tmp_path / "asked.xml").read_text()
    assert f'name="{DELTA_JARS.modules[0][1]}"' in asked
    assert '<exclude org="org.apache.hadoop"/>' in asked


def test_a_fetch_that_brings_too_little_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = """case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2;;"""
    with zipfile.ZipFile(tmp_path / "kafka_2.13.jar", "w") as jar:
        jar.writestr("a", "b")
    # As Ivy would, but with one jar only: the last argument is the pattern of the target files.
    copy = f'for last; do :; done; cp {tmp_path}/kafka_2.13.jar "$(dirname "$last")/"'
    _fake_java(tmp_path / "java", f"{version} *) {copy};; esac")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("STREAMS_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(JarFetchError, match=r"missing .*kafka-clients"):
        fetch_jars()
    assert not jar_dir().exists()
