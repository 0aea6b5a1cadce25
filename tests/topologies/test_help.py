"""The command lines of the topologies and of the demo."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import topologies
from topologies import demo
from topologies.demo_look import NotServedError, served
from topologies.submitted import environment

FOLDER = Path(topologies.__file__).parent


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_spark_submit_prints_the_help():
    spark_submit = Path(sys.executable).with_name("spark-submit")
    text = run(str(spark_submit), str(FOLDER / "flight_delays.py"), "--help")
    for option in ("--bootstrap-servers", "--application-id", "--available-now", "--config", "--property"):
        assert option in text


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("devices", ["--bootstrap-servers"]),
        ("demo", ["--flights", "--keep", "--look", "--bootstrap-servers"]),
        ("demo_lake", ["--flights", "--keep"]),
    ],
)
def test_a_program_prints_its_help(
    program: str, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / f"{program}.py"), run_name="__main__")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert [option for option in options if option not in text] == []


def test_the_demo_says_why_its_stores_cannot_be_served(tmp_path):
    with (
        pytest.raises(NotServedError, match=r"(?s)cannot be read over HTTP.*missing\.py"),
        served(tmp_path / "missing.py", ["-b", "127.0.0.1:1"], 0, tmp_path / "log"),
    ):
        pass


def test_the_demo_runs_live_where_it_can(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(demo, "submit", lambda script, options, kill_worker: called.append(options))
    demo.Demo({}, [], tmp_path, demo.Console()).process(kill_worker=False)
    assert "--set execution=auto" in " ".join(called[0])
