"""A reset to a time or to offsets: the next start begins exactly there, with nothing of the old state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from state.errors import KafkaClientError
from streams.application.preflight import Preflight
from streams.application.reset import plan_reset, reset
from streams.application.reset_checkpoint import noted_start
from streams.application.reset_positions import Wanted, parse_offsets, start_positions
from streams.checkpoint.log import read_checkpoint
from streams.errors import ConfigError, ResetUnfinishedError
from tests.doctor.world import NOW_MS, World
from tests.simulation.spark import Checkpoint


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An application that has counted `a` and `b` twice: at NOW_MS, and a minute later."""
    world = World(tmp_path)
    world.feed("a", "b")
    world.cluster.advance(60_000)
    world.feed("a", "b", at_ms=NOW_MS + 60_000)
    world.run("c")
    world.restore()
    return world


def do(world: World, wanted: Wanted | None) -> list[str]:
    said: list[str] = []
    start = start_positions(world.config, world.kafka, world.kafka, wanted) if wanted else {}
    reset(plan_reset(world.config, world.kafka, world.kafka, start=start), world.kafka, said.append)  # type: ignore[arg-type]
    return said


def counted_from_here(world: World) -> list[tuple[bytes | None, int]]:
    """Starts the application again, and gives what it counts."""
    before = world.kafka.end_offsets([("out", 0), ("out", 1)])
    sub = world.plan()[1].sub.name
    kept = read_checkpoint(world.files, sub)
    application, _ = world.plan()
    world.driver = world.start(Checkpoint())
    firsts = Preflight(application, world.files, world.kafka, lambda _: None, world.kafka).run()  # type: ignore[arg-type]
    world.checkpoint.query_id, world.checkpoint.first = kept.query_id, firsts[sub]
    while world.driver.trigger():
        pass
    rows = []
    for place, start in before.items():
        columns = world.kafka.columns(*place, start)
        if columns is not None:
            rows += zip(columns.keys.to_pylist(), map(int.from_bytes, columns.values.to_pylist()), strict=True)
    return sorted(rows)


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(NOW_MS + 30_000),
        Wanted(offsets=dict.fromkeys([("in", 0), ("in", 1)], 2)),
    ],
)
def test_the_next_start_reads_from_there_with_empty_stores(world: World, wanted: Wanted) -> None:
    said = do(world, wanted)
    assert said[-1] == "made a new checkpoint of in, which begins at the chosen offsets"
    assert not list(world.config.state_dir.glob("app/*/*"))
    assert counted_from_here(world) == [(b"a", 1), (b"a", 2), (b"b", 1), (b"b", 2), (b"c", 1), (b"c", 2)]


def test_a_reset_without_positions_begins_at_the_start(world: World) -> None:
    do(world, None)
    assert not Path(world.config.checkpoint_dir).exists()


def test_an_interrupted_reset_goes_on_to_the_same_positions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(names: object) -> None:
        raise KafkaClientError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(world.kafka, "delete_topics", refuse)
        with pytest.raises(ResetUnfinishedError):
            do(world, Wanted(NOW_MS + 30_000))
    noted = noted_start(world.config.checkpoint_dir)
    assert noted["in"].start.topics["in"].offsets == (2, 2)
    do(world, None)
    assert read_checkpoint(world.files, "in").first == noted["in"]
    assert counted_from_here(world)[0] == (b"a", 1)


def test_the_plan_says_what_happens_to_the_state(world: World) -> None:
    start = start_positions(world.config, world.kafka, world.kafka, Wanted(NOW_MS + 30_000))
    told = "\n".join(plan_reset(world.config, world.kafka, world.kafka, start=start).lines())  # type: ignore[arg-type]
    assert "in then begins to read at in-0: 2, in-1: 2, with empty stores: older records are not in them" in told


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ({("in", 0): 1}, r"in-1 is missing, whose log has \[0, 5\)"),
        ({("in", 0): 1, ("in", 1): 9}, "offset 9 of in-1 is not in the log"),
        ({("in", 0): 1, ("in", 1): 1, ("out", 0): 0}, "out-0 is no partition that the application reads"),
    ],
)
def test_offsets_that_are_not_exactly_possible_are_refused(world: World, offsets: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        start_positions(world.config, world.kafka, world.kafka, Wanted(offsets=offsets))


def test_files_of_offsets_have_the_form_of_kafkas_own_tool() -> None:
    assert parse_offsets(["in,0,7", "", "in, 1, 8"]) == {("in", 0): 7, ("in", 1): 8}
    with pytest.raises(ConfigError, match="line 1 is 'in,0', and topic,partition,offset is needed"):
        parse_offsets(["in,0"])


def test_an_unknown_application_has_no_inputs(tmp_path: Path) -> None:
    read: Callable[[], object] = lambda: start_positions(  # noqa: E731
        World(tmp_path).config, World(tmp_path).kafka, World(tmp_path).kafka, Wanted(0)
    )
    with pytest.raises(ConfigError, match="which topics app reads is not known"):
        read()
