"""Type checkers over programs of users: what they infer, and the mistakes that they must find.

The programs are in `programs/`. What they infer is said there by `assert_type`; a line with a mistake says in a comment what each
checker calls it: `# found by mypy: attr-defined; by pyright: reportAttributeAccessIssue`. Everything else must be right.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAMS = sorted(path.name for path in (HERE / "programs").glob("*.py"))
Findings = dict[str, dict[int, str]]
"""Program -> line -> what is found there: the names of the rules, sorted."""


@pytest.fixture(scope="session")
def mypy() -> Findings:
    cache = ROOT / ".mypy_cache" / "programs"  # Of these settings: the cache of `make lint` is of others.
    command = ["mypy", "--config-file", "mypy.ini", "--cache-dir", str(cache), "--output", "json", "programs"]
    output = run([sys.executable, "-m", *command])
    errors = [error for error in map(json.loads, output.splitlines()) if error["severity"] == "error"]
    return by_line([(error["file"], error["line"], error["code"]) for error in errors])


@pytest.fixture(scope="session")
def pyright() -> Findings:
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed; it comes with the extra 'dev'")
    command = ["pyright", "--project", str(HERE), "--pythonpath", sys.executable, "--outputjson"]
    found = json.loads(run([sys.executable, "-m", *command]))["generalDiagnostics"]
    errors = [error for error in found if error["severity"] == "error"]
    return by_line([(error["file"], error["range"]["start"]["line"] + 1, error["rule"]) for error in errors])


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_checker_finds_the_mistakes_of_a_program_and_no_others(
    checker: str, program: str, request: pytest.FixtureRequest
) -> None:
    findings: Findings = request.getfixturevalue(checker)
    assert findings.get(program, {}) == stated(program, checker)


def test_the_programs_hold_mistakes_for_both_checkers_to_find() -> None:
    assert {checker: len(stated("mistakes.py", checker)) > 50 for checker in ("mypy", "pyright")} == {
        "mypy": True,
        "pyright": True,
    }


def run(command: list[str]) -> str:
    """What a checker prints; it sees this project as an installed package, and no settings of the machine."""
    # pyright runs on the Node.js that was installed with it, whatever else this machine has.
    of_pyright = {"PYRIGHT_PYTHON_GLOBAL_NODE": "off", "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    environment = {**os.environ, **of_pyright, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def by_line(errors: list[tuple[str, int, str]]) -> Findings:
    found: defaultdict[str, defaultdict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, line, rule in errors:
        found[Path(path).name][line].add(rule)
    return {name: {line: ", ".join(sorted(rules)) for line, rules in lines.items()} for name, lines in found.items()}


def stated(program: str, checker: str) -> dict[int, str]:
    """What the comments of a program say that a checker finds."""
    lines = (HERE / "programs" / program).read_text(encoding="utf-8").splitlines()
    said = ((at, re.search(rf"# found by .*?{checker}: ([\w, -]+?)(?:;|$)", line)) for at, line in enumerate(lines, 1))
    return {at: found[1].strip() for at, found in said if found}
