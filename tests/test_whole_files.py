"""The plugin that leaves each file to one process (`whole_files`), on small projects of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMPORTED = "from pathlib import Path\n\nPath(__file__).with_suffix('.imported').open('a').write('once ')\n"
FIRST = f"""{IMPORTED}
import pytest

@pytest.mark.parametrize("number", [1, 2, 3])
def test_passes(number, folder): assert folder == "first"

@pytest.mark.slow
def test_slow(): assert False
"""
SECOND = f"""{IMPORTED}
def test_fails(folder): assert folder == "first"
def test_passes(folder): assert folder == "second"
"""
NOT_CHOSEN = f"""{IMPORTED}
import pytest

@pytest.mark.slow
def test_slow(): assert False
"""
FIXTURE = """import pytest

@pytest.fixture(scope="package")
def folder():
    yield {name!r}
"""


def test_a_file_is_imported_by_one_process_which_chooses_and_reports_its_tests(tmp_path: Path) -> None:
    files = {
        "first/test_first.py": FIRST,
        "first/test_not_chosen.py": NOT_CHOSEN,
        "second/test_cannot_be_imported.py": "import nothing_of_this_name\n",
        "second/test_second.py": SECOND,
        **{f"{name}/conftest.py": FIXTURE.format(name=name) for name in ("first", "second")},
        **{f"{name}/__init__.py": "" for name in ("first", "second")},
        "pytest.ini": "[pytest]\nmarkers = slow\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    options = ["-n", "2", "--dist", "load", "--maxschedchunk", "1", "-p", "tests.whole_files", "-m", "not slow"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:streams", *options, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    summary = re.findall(r"^(?:FAILED|ERROR) \S*/((?:first|second)/\S+)", done.stdout, re.MULTILINE)
    assert sorted(summary) == ["second/test_cannot_be_imported.py", "second/test_second.py::test_fails"]
    assert re.search(r"= 1 failed, 4 passed, 1 error in ", done.stdout), done.stdout
    imported = {path.stem: path.read_text() for path in tmp_path.rglob("*.imported")}
    assert imported == {"test_first": "once ", "test_second": "once ", "test_not_chosen": "once "}
