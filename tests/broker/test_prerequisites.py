"""What is said when Java or the jars are missing, and that half a set of jars is never used."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from streams.broker import JarFetchError, JarsMissingError, JavaError, fetch_jars
from streams.broker.jars import DELTA_JARS, class_path, find_java, is_complete, jar_dir, write_manifest

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
