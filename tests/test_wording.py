"""Words for numbers in messages."""

import pytest

from streams.wording import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "record", "1 record"), (0, "record", "0 records"), (2, "query", "2 queries"), (1000, "task", "1,000 tasks")],
)
def test_a_noun_follows_its_number(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
