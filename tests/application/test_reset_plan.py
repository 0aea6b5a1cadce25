"""A reset says what it will delete, deletes that and nothing else, and is carried on where it was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from state.errors import CheckpointMismatchError
from state.restore.directory import StateDirectory
from streams.application.owned_topics import write_manifest
from streams.application.reset import check_no_reset, noted_topics, plan_reset, reset
from streams.config import StreamsConfig
from streams.errors import ConfigError, ResetUnfinishedError
from streams.topology.plan import build_plan
from tests.application.cluster import CONTROL, files
from tests.application.test_owned_topics import KEPT, MADE, PROGRAM, all_made, neighbours

OTHERS = {"orders-eu-in-commits", "orders-eu-counts-changelog", "orders-eu-changelog", "orders.in"}


@pytest.fixture
def config(tmp_path: Path) -> StreamsConfig:
    """Of an application with a checkpoint, a description and local state, beside another one's."""
    settings = StreamsConfig(application_id="orders", bootstrap_servers="nowhere:1", base_dir=tmp_path)
    write_manifest(build_plan(PROGRAM.build(), "orders"), settings.checkpoint_dir)
    for folder in (
        "checkpoint/orders/in/offsets",
        "checkpoint/orders/in~replaced-7/offsets",
        "checkpoint/orders/of-an-old-program/offsets",
        "checkpoint/orders-eu/in/offsets",
        "state/orders/in/0/db",
        "state/orders-eu/in/0/db",
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "0").touch()
    (tmp_path / "checkpoint/orders/of-an-old-program/metadata").touch()
    return settings


def planned(config: StreamsConfig, kafka: Any, *named: str) -> Any:
    return plan_reset(config, kafka, kafka, named)


def do(config: StreamsConfig, kafka: Any, *named: str) -> list[str]:
    said: list[str] = []
    reset(planned(config, kafka, *named), kafka, said.append)
    return said


def test_what_is_its_own_goes_in_this_order_and_nothing_else(config: StreamsConfig, tmp_path: Path) -> None:
    kafka = neighbours(all_made())
    kafka.groups["orders"] = {("orders.in", 0): 1}
    said = do(config, kafka)
    assert set(kafka.topics) == OTHERS
    assert kafka.asked == [MADE[2], MADE[1], MADE[3], MADE[0], "group orders"], (
        "commits prove the others, so they go last"
    )
    assert set(files(tmp_path)) == {"checkpoint/orders-eu/in/offsets/0", "state/orders-eu/in/0/db/0"}
    assert not Path(config.checkpoint_dir).exists()
    assert said[-2:] == ["deleted local state of 1 task", f"deleted checkpoint {config.checkpoint_dir}"]


def test_looking_changes_nothing_and_tells_all(config: StreamsConfig, tmp_path: Path) -> None:
    kafka = neighbours(all_made()).put("orders-old-changelog", b"row", CONTROL)
    topics, before = dict(kafka.topics), files(tmp_path)
    told = "\n".join(planned(config, kafka).lines())
    assert (kafka.topics, files(tmp_path)) == (topics, before)
    assert "topics: 4" in told
    assert "orders-in-commits: up to 2 records (known from topology.json)" in told
    assert "not orders-eu-in-commits: it belongs to the application orders-eu" in told
    assert "not orders-eu-changelog, orders-old-changelog: nothing proves" in told
    assert f"{tmp_path / 'state/orders'}, 1 task (on" in told
    assert f"{config.checkpoint_dir}, 3 queries" in told
    assert "topology.json in" not in told
    assert "warning" not in told


def test_without_a_description_the_markers_tell(config: StreamsConfig) -> None:
    (Path(config.checkpoint_dir) / "topology.json").unlink()
    kafka = neighbours(all_made()).put("orders-old-changelog", b"row")
    told = "\n".join(planned(config, kafka).lines())
    assert "checkpoint/orders has no topology.json: only commit markers say" in told
    assert "(known from the commits of query query-1)" in told
    do(config, kafka, "orders-old-changelog")
    assert set(kafka.topics) == OTHERS


@pytest.mark.parametrize("name", ["orders-eu-in-commits", "orders.in", "orders-gone-changelog", "elsewhere-x-commits"])
def test_only_internal_topics_of_the_application_can_be_named(name: str, config: StreamsConfig) -> None:
    kafka = neighbours(all_made()).put("elsewhere-x-commits")
    with pytest.raises(ConfigError, match=f"--topics: '{name}'"):
        planned(config, kafka, name)


@pytest.mark.parametrize("protected", [MADE[1], MADE[0]])
def test_an_interrupted_reset_is_reported_noted_and_finished(protected: str, config: StreamsConfig) -> None:
    kafka = neighbours(all_made()).put("orders-old-changelog", b"row")
    kafka.protected = {protected}
    with pytest.raises(ResetUnfinishedError, match=rf"still there: .*{protected}.*run `streams reset orders` again"):
        do(config, kafka, "orders-old-changelog")
    assert noted_topics(config.checkpoint_dir) == sorted([*MADE, "orders-old-changelog"])
    with pytest.raises(ResetUnfinishedError, match="`streams reset orders` again"):
        check_no_reset("orders", config.checkpoint_dir)
    assert (Path(config.checkpoint_dir) / "in").exists(), "the checkpoint says what was: it stays until Kafka is done"
    kafka.protected = set()
    do(config, kafka)
    assert set(kafka.topics) == OTHERS
    check_no_reset("orders", config.checkpoint_dir)


def test_what_was_named_is_known_to_the_next_attempt(config: StreamsConfig) -> None:
    kafka = all_made().put("orders-old-changelog", b"row")
    kafka.protected = {"orders-old-changelog"}
    with pytest.raises(ResetUnfinishedError):
        do(config, kafka, "orders-old-changelog")
    kafka.protected = set()
    assert planned(config, kafka).topics == {
        **dict.fromkeys(MADE[:1], "topology.json"),
        "orders-again-repartition-commits": "topology.json",
        "orders-old-changelog": "a reset that was begun",
    }
    do(config, kafka)
    assert not kafka.topics


def test_what_is_not_the_engines_stays_in_the_folder(config: StreamsConfig, tmp_path: Path) -> None:
    folder = Path(config.checkpoint_dir)
    (folder / "notes.txt").touch()
    (folder / "photos").mkdir()
    (folder / "link").symlink_to(tmp_path / "checkpoint/orders-eu/in")
    said = do(config, all_made())
    assert said[-1].endswith("but for link, notes.txt, photos")
    assert (tmp_path / "checkpoint/orders-eu/in/offsets/0").exists()
    check_no_reset("orders", config.checkpoint_dir)


def test_another_applications_checkpoint_is_left_alone(config: StreamsConfig, tmp_path: Path) -> None:
    before = files(tmp_path)
    foreign = config.model_copy(update={"application_id": "stranger"})
    with pytest.raises(CheckpointMismatchError, match="belongs to another application id, 'orders'"):
        planned(foreign, all_made())
    assert files(tmp_path) == before


def test_a_checkpoint_in_a_remote_storage_is_left_to_its_tools(config: StreamsConfig) -> None:
    kafka = all_made()
    said = do(config.model_copy(update={"checkpoint_dir": "s3://bucket/orders"}), kafka)
    assert not kafka.topics
    assert "delete the checkpoint s3://bucket/orders with your storage's own tools" in said[-1]


def test_a_running_application_is_reported(config: StreamsConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = all_made()
    kafka.open = {(MADE[0], 0)}
    (warning,) = planned(config, kafka).warnings
    assert "a transaction is open" in warning
    monkeypatch.setattr("streams.application.reset.time.time", lambda: 5.007)
    assert "the last commit is 5 s old" in planned(config, kafka).warnings[1]


@pytest.mark.parametrize("name", [".", "..", "...", "", "a/b", "/tmp"])
def test_ids_that_lead_elsewhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="application"):
        StreamsConfig(application_id=name, base_dir=tmp_path)
    keep = tmp_path / "state/app/sub/0"
    keep.mkdir(parents=True)
    with pytest.raises(ValueError, match="no folder of its own"):
        StateDirectory(tmp_path / "state").wipe(name)
    with pytest.raises(ValueError, match="no folder of its own"):
        StateDirectory(tmp_path / "state").task("app", name, 0)
    assert keep.exists()


def test_the_description_is_the_one_of_this_program() -> None:
    assert set(KEPT["sub_topologies"]) == {"in", "again-repartition"}
