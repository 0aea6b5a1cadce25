"""`streams drill`: the list, and drills that do not exist or do not fit."""

from __future__ import annotations

import orjson


def test_the_list_has_every_drill(streams) -> None:
    from streams.drills.catalogue import DRILLS

    text = streams("drill", "list").output
    assert all(f"{drill.id} " in text for drill in DRILLS)
    listed = orjson.loads(streams("drill", "list", "--json").output)
    assert [one["id"] for one in listed] == [drill.id for drill in DRILLS]


def test_an_unknown_drill_is_refused(streams) -> None:
    result = streams("drill", "run", "D99")
    assert result.exit_code == 1
    assert "there is no drill 'D99'" in result.output


def test_a_drill_whose_fault_lies_in_its_own_program_takes_no_other(streams) -> None:
    result = streams("drill", "run", "D25", "--topology", "docs/examples/word_count.py")
    assert result.exit_code == 1
    assert "D25 cannot be held with a program of your own" in result.output
