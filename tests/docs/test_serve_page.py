"""`docs/serve.md` works as it is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from streams.serve.app import Api
from streams.serve.http.security import Guard, Security
from streams.testing import TopologyTestDriver
from tests.docs.console import play, with_free_ports

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
PROGRAM = PAGE.partition("```python\n")[2].partition("```")[0]


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long
def test_every_command_prints_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM, encoding="utf-8")
    play(with_free_ports(PAGE, 8080), tmp_path)


def test_the_test_of_the_page_passes() -> None:
    with TopologyTestDriver(names_of_program()["build"]()) as driver:
        driver.create_input_topic("payments").pipe_input("ann", 5)
        exec(PAGE.partition("```py\n")[2].partition("```")[0], {"driver": driver})


def test_the_page_has_every_endpoint() -> None:
    with TopologyTestDriver(names_of_program()["build"]()) as driver:
        routes = Api(driver.served(), Guard(Security())).application().routes
    paths = {route.path for route in routes if isinstance(route, Route)}
    told = {
        (path + "/")
        .replace("/S/", "/{store}/")
        .rstrip("/")
        .replace("/K", "/{key:any_text}")
        .replace("/topics/T", "/topics/{topic}")
        for path in re.findall(r"^\| `(?:GET|POST) (/[^`?]*)`", PAGE, re.MULTILINE)
    }
    assert told == paths


def names_of_program() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(PROGRAM, "app.py", "exec"), names)
    return names
