"""Lifecycle events: logged once, shown once, handed on in order, and without secrets."""

from __future__ import annotations

import logging
import threading

import pytest

from state import secrets
from state.commit.decide import TaskIdentity
from state.errors import ClientFailure, FencedError, RestoreError
from state.restore.plan import Action
from state.restore.restorer import RestoreReport, StoreReport
from streams.driver.reports import INTERVAL_S, DeadLetterEvents, OtherUnitEvents, PauseEvents
from streams.engine.source.pauses import WHOLE, Pauses
from streams.engine.step.step import log_failed_attempt, step_events
from streams.logs.events import (
    DEAD_LETTERS,
    EXECUTION_CHANGED,
    KINDS,
    OTHER_UNIT,
    PAUSED,
    RESTORED,
    RESUMED,
    RETRIED,
    STARTING,
    STOPPING,
    Event,
    Events,
    Notifier,
)


class Heard:
    """Events of an application `app`, with what was said and heard."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.events: list[Event] = []
        self.all = Events("app", self.said.append, self.events.append, clock=lambda: 12.5)

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_an_event_is_logged_at_its_level_and_handed_to_the_listener(
    heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    heard.all.emit(RETRIED, "again", "sub", 3, attempt=2, batch_id=7)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "again")
    assert heard.events == [Event(RETRIED, 12_500, "app", "again", "sub", 3, {"attempt": 2, "batch_id": 7})]
    assert record.event is heard.events[0]  # type: ignore[attr-defined]
    assert heard.said == []


def test_an_event_that_people_are_to_see_is_said_once(heard: Heard) -> None:
    heard.all.emit(PAUSED, "is paused", since_ms=1)
    assert heard.said == ["is paused"]


def test_names_are_unique_and_fields_do_not_hide_those_of_every_line() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    common = {"time", "level", "logger", "event", "application", "sub_topology", "task", "message"}
    assert [kind.name for kind in KINDS if common & set(kind.fields)] == []


def test_an_event_has_no_secret(heard: Heard) -> None:
    secrets.remember({"sasl.password": "canary"})
    heard.all.emit(STARTING, "with canary", version="canary")
    assert "canary" not in repr(heard.events)


def test_a_listener_that_fails_hears_the_next_event(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def listener(event: Event) -> None:
        heard.append(event.name)
        raise ValueError("listener")

    events = Events("app", None, listener)
    events.emit(STARTING, "a")
    events.emit(STOPPING, "b")
    assert heard == ["starting", "stopping"]
    assert caplog.text.count("the event listener of app has failed") == 2


def test_a_listener_that_causes_an_event_hears_it_afterwards() -> None:
    heard: list[str] = []

    def listener(event: Event) -> None:
        if event.kind is STARTING:
            events.emit(STOPPING, "b")
        heard.append(event.name)

    events = Events("app", None, listener)
    events.emit(STARTING, "a")
    assert heard == ["starting", "stopping"]


def test_a_listener_is_called_by_one_thread_at_a_time_and_in_order() -> None:
    heard: list[int] = []
    entered, go_on = threading.Event(), threading.Event()

    def listener(number: int) -> None:
        entered.set()
        assert go_on.wait(10)
        heard.append(number)

    notifier = Notifier("it", listener)
    first = threading.Thread(target=notifier.notify, args=(1,))
    first.start()
    assert entered.wait(10)
    # Returns at once: the first thread delivers it.
    notifier.notify(2)
    go_on.set()
    first.join(10)
    assert heard == [1, 2]


REPORT = RestoreReport(
    3,
    (
        StoreReport("counts", Action.FROM_START, "no local state", 120, 100, 5_000, 1.25),
        StoreReport("names", Action.NOTHING, "up to date"),
    ),
)


def test_a_restore_in_a_worker_is_an_event_of_the_driver(heard: Heard) -> None:
    heard.all.reported("sub", 3, step_events(0, 7, REPORT))
    (event,) = heard.events
    assert (event.kind, event.sub_topology, event.task) == (RESTORED, "sub", 3)
    assert event.fields == {
        "source": "changelog",
        "stores": {"counts": "from start"},
        "reasons": {"counts": "no local state"},
        "records": 120,
        "rows": 100,
        "bytes": 5_000,
        "seconds": 1.25,
    }
    assert set(event.fields) == set(RESTORED.fields)
    assert event.message == (
        "task 3 has restored 100 rows from changelog (120 changelog records) in 1.2 s from the start: no local state"
    )


def test_a_restore_from_a_copy_names_the_copy(heard: Heard) -> None:
    up_to_date = RestoreReport(3, (StoreReport("counts", Action.NOTHING, "up to date"),), "snapshot 12")
    heard.all.reported("sub", 3, step_events(0, 7, up_to_date))
    assert heard.events[0].fields["source"] == "snapshot 12"


@pytest.mark.parametrize("report", [None, RestoreReport(3, (StoreReport("c", Action.NOTHING, "up to date"),))])
def test_a_step_without_a_restore_has_no_events(report: RestoreReport | None) -> None:
    assert step_events(0, 7, report) == []


def test_a_repeated_attempt_is_told_by_the_one_that_succeeds(heard: Heard) -> None:
    heard.all.reported("sub", 1, step_events(2, 7, None))
    assert (heard.names, heard.events[0].fields) == (["retried"], {"attempt": 3, "batch_id": 7})


IDENTITY = TaskIdentity("app", "sub", 1, 4, "query", "hash")


@pytest.mark.parametrize(
    ("error", "name", "field"),
    [
        (FencedError("taken over", ClientFailure(-144, "_FENCED", "x")), "fenced", ("transactional_id", "app-sub-1")),
        (RestoreError("short of it"), "attempt_failed", ("batch_id", 7)),
    ],
)
def test_an_attempt_that_fails_is_logged_by_its_worker(
    error: Exception, name: str, field: tuple[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    log_failed_attempt(IDENTITY, 0, 7, error)
    (record,) = caplog.records
    event = record.event  # type: ignore[attr-defined]
    assert (event.name, event.task, event.fields["attempt"]) == (name, 1, 1)
    assert event.fields[field[0]] == field[1]
    assert event.fields["error"]["type"] == type(error).__name__
    assert set(event.fields) == set(event.kind.fields)


def test_dead_letters_are_told_now_and_then_with_their_number(heard: Heard) -> None:
    now = [0.0]
    letters = DeadLetterEvents(heard.all, "dlq", lambda: now[0])
    letters.step("sub", {"dead_letters:processing": 1, "dropped:x:processing": 1})
    letters.step("sub", {"dead_letters:processing": 2})
    letters.step("other", {"dead_letters:processing": 4})
    now[0] += INTERVAL_S
    letters.step("sub", {"dead_letters:processing": 1})
    letters.step("sub", {"dead_letters:processing": 5})
    letters.report(all_of_them=True)
    assert [(event.sub_topology, event.fields["count"]) for event in heard.events] == [
        ("sub", 1),
        ("other", 4),
        ("sub", 3),
        ("sub", 5),
    ]
    assert {event.kind for event in heard.events} == {DEAD_LETTERS}
    assert heard.events[0].message == "1 record was sent to dlq as dead letters (processing) by sub"


def test_times_in_another_unit_are_told_once_for_each_source(heard: Heard) -> None:
    units = OtherUnitEvents(heard.all)
    units.step("sub", {"in_seconds:a": 3, "in:a": 3})
    units.step("sub", {"in_seconds:a": 5, "in_microseconds:b": 1})
    units.step("sub", {"in_seconds:a": 1})
    assert [(event.kind, event.fields) for event in heard.events] == [
        (OTHER_UNIT, {"source": "a", "counter": "in_seconds", "count": 3}),
        (OTHER_UNIT, {"source": "b", "counter": "in_microseconds", "count": 1}),
    ]
    assert "look like seconds" in heard.events[0].message


def test_pauses_and_resumes_are_events_whoever_has_asked_for_them(heard: Heard) -> None:
    paused: list[list[str]] = []
    pauses = PauseEvents("app", heard.all, lambda: Pauses({}), changed=lambda: paused.append(pauses.paused(["sub"])))
    for state in ({}, {WHOLE: 5}, {WHOLE: 5}, {WHOLE: 5, "sub": 6}, {"sub": 6}, {}):
        pauses.take(Pauses(state))
    assert paused == [["sub"], ["sub"], ["sub"], []]
    assert [(event.kind, event.sub_topology) for event in heard.events] == [
        (PAUSED, None),
        (PAUSED, "sub"),
        (RESUMED, None),
        (RESUMED, "sub"),
    ]
    assert heard.said[0] == "the application is paused, until: streams resume app"


def test_another_execution_is_an_event(heard: Heard) -> None:
    pauses = PauseEvents("app", heard.all, lambda: Pauses({}))
    for execution in (None, "auto", "auto", None):
        pauses.take(Pauses({}, execution))
        assert pauses.execution == execution
    assert [(event.kind, event.fields["execution"]) for event in heard.events] == [
        (EXECUTION_CHANGED, "auto"),
        (EXECUTION_CHANGED, None),
    ]
    assert heard.said[0] == "the application runs with execution=auto from now on, by: streams execution app"
