"""`streams rescale` says what is missing before it asks Kafka anything."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--tasks N"),
        (["--tasks", "3", "--json"], "--json cannot ask"),
        (["--tasks", "3", "--state", "node"], "NODE=copy or NODE=drop is needed"),
        (["--tasks", "3", "--state", "node=keep"], "NODE=copy or NODE=drop is needed"),
    ],
)
def test_what_is_missing_is_said(streams, arguments: list[str], says: str) -> None:
    done = streams("rescale", "app.py", *arguments)
    assert done.exit_code == 1
    assert says in done.output
