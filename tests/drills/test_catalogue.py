"""The list of drills: complete, in order, and the quick ones within a few minutes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace, TracebackType

import pytest

from state.errors import StreamsError
from streams.broker.processes import Watchdog
from streams.drills import runner
from streams.drills.cases import DRILLS
from streams.drills.drill import Conditions, Drill, DrillFailed, NotPossibleHere
from streams.drills.processes import Supervised
from streams.drills.program import OwnProgram
from streams.drills.runner import ATTEMPTS, DrillResult, Outcome, page, run_drill
from streams.drills.world import World

QUICK_MINUTES = 5
PAGE = Path(__file__).parents[2] / "docs" / "drills.md"
IDS = [drill.id for drill in DRILLS]


def test_the_drills_are_numbered_without_gaps() -> None:
    assert [f"D{number:02}" for number in range(1, len(IDS) + 1)] == IDS


def test_the_quick_drills_are_quick() -> None:
    quick = [drill.minutes for drill in DRILLS if drill.quick]
    assert quick
    assert sum(quick) <= QUICK_MINUTES


@pytest.mark.parametrize("drill", DRILLS, ids=IDS)
def test_a_drill_says_what_it_does(drill: Drill) -> None:
    assert all((drill.title, drill.injects, drill.holds))


@pytest.mark.parametrize("drill", [drill for drill in DRILLS if drill.any_program], ids=lambda drill: drill.id)
def test_a_drill_for_any_program_knows_nothing_of_the_default_one(drill: Drill) -> None:
    names = set(drill.run.__code__.co_names)
    assert not names & {"ORDERS", "PAYMENTS", "TOTALS", "TOTALS_LOG", "SUB", "on_commit", "KEYS"}


@pytest.mark.parametrize("drill", DRILLS, ids=IDS)
def test_the_page_of_results_has_every_drill(drill: Drill) -> None:
    title = f"{drill.title} (quick)" if drill.quick else drill.title
    assert f"| {drill.id} {title} | {drill.injects} | {drill.holds} |" in PAGE.read_text(encoding="utf-8")


# How a drill ends: passed only with a proof of its fault and nothing wrong; else failed, skipped or spoiled.

SKIPPED_MARKERS = (
    "Couldn't find leader endpoint for partitions Set(a-1) while trying to send transaction markers for a-1, these partitions "
    "are likely deleted already and hence can be skipped"
)


class EmptyWorld(World):
    """A world without broker and application, in which nothing is wrong."""

    wrong: tuple[str, ...] = ()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def settle(self) -> list[str]:
        return list(self.wrong)


def held(run: Callable[[World], None], tmp_path: Path, settles: bool = True) -> DrillResult:
    drill = Drill("D99", "a drill", "a fault", "all", run, settles=settles)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "World", EmptyWorld)
        return run_drill(drill, OwnProgram(), lambda text: None, folder=tmp_path)


def seen(world: World) -> None:
    world.saw("the fault")


def test_a_drill_with_a_proof_and_nothing_wrong_passes_and_leaves_nothing(tmp_path: Path) -> None:
    result = held(seen, tmp_path)
    assert (result.outcome, result.evidence, result.folder) == (Outcome.PASSED, ["the fault"], None)
    assert list(tmp_path.iterdir()) == []


def test_a_drill_that_saw_no_fault_fails(tmp_path: Path) -> None:
    result = held(lambda world: None, tmp_path)
    assert result.outcome is Outcome.FAILED
    assert result.wrong == ["no fault was seen, so the drill proves nothing"]


def test_what_the_verifier_finds_is_a_failure_whose_folder_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmptyWorld, "wrong", ("totals: 1 of 2 results missing",))
    result = held(seen, tmp_path)
    assert (result.outcome, result.wrong) == (Outcome.FAILED, ["totals: 1 of 2 results missing"])
    assert result.folder is not None
    assert result.folder.is_dir()
    assert held(seen, tmp_path, settles=False).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        (DrillFailed("too late"), Outcome.FAILED, "too late"),
        (StreamsError("no broker"), Outcome.FAILED, "StreamsError: no broker"),
        (NotPossibleHere("needs root"), Outcome.SKIPPED, "needs root"),
    ],
)
def test_errors_of_a_drill_are_its_result(error: Exception, outcome: Outcome, said: str, tmp_path: Path) -> None:
    def failing(world: World) -> None:
        world.saw("the fault")
        raise error

    result = held(failing, tmp_path)
    assert (result.outcome, result.wrong) == (outcome, [said])


def spoiling(world: World) -> None:
    node = world.folder / "broker" / "node-1"
    node.mkdir(parents=True)
    (node / "server.log").write_text(f"INFO started\n{SKIPPED_MARKERS}\n")
    raise DrillFailed("no results within 180 s")


def test_a_run_that_the_broker_itself_has_spoiled_is_repeated_with_other_seeds(tmp_path: Path) -> None:
    seeds: list[int] = []

    def run(world: World) -> None:
        seeds.append(world.seed)
        spoiling(world)

    result = held(run, tmp_path)
    assert (result.outcome, result.wrong) == (Outcome.SPOILED, [SKIPPED_MARKERS])
    assert seeds == list(range(1, ATTEMPTS + 1))


@pytest.mark.parametrize(
    ("not_live", "asked", "live"), [("", True, True), ("it is about files", True, False), ("", False, False)]
)
def test_a_drill_runs_live_unless_it_is_about_micro_batches(
    tmp_path: Path, not_live: str, asked: bool, live: bool
) -> None:
    drill = Drill("D99", "a drill", "a fault", "all", lambda world: world.saw(f"live: {world.live}"), not_live=not_live)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "World", EmptyWorld)
        result = run_drill(drill, OwnProgram(), lambda text: None, folder=tmp_path, live=asked)
    assert result.evidence == [f"live: {live}"]


def test_a_repeated_run_may_pass(tmp_path: Path) -> None:
    def run(world: World) -> None:
        if world.seed == 1:
            spoiling(world)
        world.saw("the fault")

    assert held(run, tmp_path).outcome is Outcome.PASSED


def test_the_page_has_outcome_proofs_and_recovery_times() -> None:
    drill = Drill("D98", "a drill", "a fault", "all", seen, quick=True, conditions=Conditions())
    other, third = replace(drill, id="D99", quick=False), replace(drill, id="D97")
    passed = DrillResult(drill, evidence=["killed | twice"], recoveries=[("a kill", 2.04), ("another", 7.25)])
    failed = DrillResult(other, Outcome.FAILED, wrong=["two\nlines"])
    text = page([passed, failed], [third, drill, other])
    assert "1 of 2 drills that ran passed" in text
    assert "| D97 a drill (quick) | a fault | all | not held | - |" in text
    assert "| D98 a drill (quick) | a fault | all | passed | 7.2 s |" in text
    assert "| D99 a drill | a fault | all | failed: two lines | - |" in text
    assert "* killed \\| twice\n* 2.0 s until results after: a kill" in text


def test_a_page_keeps_what_it_says_of_drills_that_were_not_held_again() -> None:
    kept = Drill("D97", "a drill", "a fault", "all", seen)
    again, never = replace(kept, id="D98"), replace(kept, id="D99")
    micro = replace(kept, id="D96", not_live="it has no files")
    drills = [micro, kept, again, never]
    before = page(
        [
            DrillResult(micro),
            DrillResult(kept, evidence=["seen | before"], recoveries=[("a kill", 2.04)]),
            DrillResult(again, Outcome.FAILED, evidence=["seen before"], wrong=["too late"]),
        ],
        drills,
        live=True,
    )
    assert "2 of 3 drills that ran passed" in before
    text = page([DrillResult(again, evidence=["seen now"])], drills, live=True, before=before)
    assert "3 of 3 drills that ran passed" in text
    assert "| D96 a drill | a fault | all | passed (in micro-batches: it has no files) | - |" in text
    assert "| D97 a drill | a fault | all | passed | 2.0 s |" in text
    assert "| D98 a drill | a fault | all | passed | - |" in text
    assert "| D99 a drill | a fault | all | not held | - |" in text
    assert text.endswith(
        "**D97 a drill**\n\n* seen \\| before\n* 2.0 s until results after: a kill\n\n**D98 a drill**\n\n* seen now\n"
    )
    assert page([], drills, live=True, before=text) == text


@pytest.mark.parametrize("damages", [False, True])
def test_a_database_that_was_taken_for_damaged_fails_a_drill_that_has_damaged_none(
    tmp_path: Path, damages: bool
) -> None:
    world = World(tmp_path, OwnProgram(), Conditions())
    world.application = Supervised("", tmp_path, "", "drill", (), Watchdog())
    line = "task 0 of 2 of drill/orders: the local database was damaged: CURRENT is gone; it is restored from its changelogs"
    world.application._all.append(SimpleNamespace(log=lambda: f"before\n{line}\nafter"))  # type: ignore[arg-type]
    world.damages_state = damages
    assert world._restored_without_a_fault() == ([] if damages else [line])


# The quick drills, as `streams drill run quick` holds them; `make drills` holds all of them. What D02 proves,
# tests/spark/test_crash_points.py proves of every point, for each record. In `make test` one of them shows that drills work.

QUICK = [drill for drill in DRILLS if drill.quick and drill.id != "D02"]
LONG = ("D19", "D36")


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "drill", [pytest.param(one, marks=[pytest.mark.long] * (one.id in LONG), id=one.id) for one in QUICK]
)
def test_a_quick_drill_passes(drill: Drill, tmp_path: Path) -> None:
    said: list[str] = []
    result = run_drill(drill, OwnProgram(), said.append, folder=tmp_path)
    assert result.outcome is Outcome.PASSED, (result.wrong, said)
