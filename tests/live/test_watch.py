"""A step that takes long is reported with the line that the slot is in."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from streams.engine.live.watch import SLOW_AFTER_S, Watch


def test_a_function_that_hangs_is_named_and_named_again() -> None:
    now, told, go_on = [0.0], list[tuple[str, int, Mapping[str, Any]]](), threading.Event()
    watches = list[Watch]()
    hangs = threading.Event()

    def users_function() -> None:
        hangs.set()
        go_on.wait(60)

    def slot() -> None:
        watches.append(Watch(lambda *one: told.append(one), clock=lambda: now[0]))
        with watches[0].step("orders", 3):
            users_function()

    thread = threading.Thread(target=slot)
    thread.start()
    try:
        assert hangs.wait(60)
        for now[0] in (SLOW_AFTER_S - 1, SLOW_AFTER_S, 1.5 * SLOW_AFTER_S, 2 * SLOW_AFTER_S):
            watches[0].look()
    finally:
        go_on.set()
        thread.join()
    now[0] += 100
    watches[0].look()
    assert [(sub, task, one["fields"]["seconds"]) for sub, task, one in told] == [
        ("orders", 3, 10.0),
        ("orders", 3, 20.0),
    ]
    place = f"test_watch.py, line {users_function.__code__.co_firstlineno + 2}"
    assert place in told[0][2]["message"]
    assert place in told[0][2]["fields"]["line"]
