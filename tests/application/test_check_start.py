"""What a start refuses, before it has made anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from state.errors import ChangelogMismatchError, CheckpointMismatchError
from streams import Consumed, JsonSerde, Materialized, Repartitioned, StreamsBuilder
from streams.application.dead_letters import check_dead_letter_topic
from streams.application.owned_topics import described_topics, write_manifest, written_manifest
from streams.application.prepare import Application, plan_application
from streams.application.reset import note_reset
from streams.application.start import check_start
from streams.config import Execution, StreamsConfig
from streams.errors import ConfigError, RescaleUnfinishedError, ResetUnfinishedError, TopologyMismatchError
from streams.topology.diff import REFUSED, compare
from streams.topology.planning.sub_topologies import in_run_order
from streams.topology.topology import Topology
from tests.application.cluster import Cluster, files

Program = Callable[[StreamsBuilder], object]


def built(program: Program) -> Topology:
    builder = StreamsBuilder()
    program(builder)
    return builder.build()


def counts(builder: StreamsBuilder, topic: str = "in", name: str = "counts", **how: Any) -> object:
    return builder.stream(topic).group_by_key().count(named=name, materialized=Materialized(name=name, **how))


def copy(builder: StreamsBuilder, topic: str = "in") -> None:
    builder.stream(topic).to("out")


def cluster() -> Cluster:
    made = Cluster()
    for topic in ("in", "more", "out"):
        made.put(topic)
    return made


def settings(tmp_path: Path, **more: Any) -> StreamsConfig:
    options: dict[str, Any] = {"application_id": "app", "bootstrap_servers": "nowhere:1", "base_dir": tmp_path}
    return StreamsConfig(**options, **more)


def start(program: Program, kafka: Any, config: StreamsConfig) -> Application:
    """All that a start does before it makes topics, and what it keeps when they are made."""
    application = plan_application(built(program), config, kafka)
    check_start(application, kafka, kafka)
    write_manifest(application.plan, config.checkpoint_dir)
    return application


def run(program: Program, kafka: Cluster, config: StreamsConfig) -> Application:
    """A start, and one commit of each sub-topology."""
    application = start(program, kafka, config)
    for prepared in application.subs:
        kafka.commit(f"app-{prepared.sub.name}-commits", "app", list(prepared.sub.stores))
    return application


OTHER_PROGRAMS: dict[str, tuple[Program, Program, str]] = {
    "a moved store": (counts, lambda b: counts(b, "more"), "store 'counts' belongs to the sub-topology 'more' now"),
    "a renamed store": (counts, lambda b: counts(b, name="other"), r"Materialized\(name='counts'\)"),
    "a stateless one whose source is elsewhere": (
        lambda b: (copy(b), copy(b, "more")),
        lambda b: b.stream("in").merge(b.stream("more")).to("out"),
        "source 'KSTREAM-SOURCE-more' reads more in the sub-topology 'in' now",
    ),
    "a stateless one that is read with others": (
        copy,
        lambda b: b.stream(["in", "a"], Consumed(name="s")).to("out"),
        "in: source 's' is new",
    ),
    "a changelog that was not kept": (
        lambda b: counts(b, logging=False),
        counts,
        "a restore would lack them",
    ),
}


@pytest.mark.parametrize("what", OTHER_PROGRAMS)
def test_a_program_of_another_structure_is_refused(what: str, tmp_path: Path) -> None:
    before, after, said = OTHER_PROGRAMS[what]
    kafka, config = cluster().put("a"), settings(tmp_path)
    run(before, kafka, config)
    topics, kept = dict(kafka.topics), files(tmp_path)
    with pytest.raises(TopologyMismatchError, match=said):
        start(after, kafka, config)
    assert (kafka.topics, files(tmp_path)) == (topics, kept), "nothing was written"
    run(before, kafka, config)


@dataclass
class Order:
    id: int


@dataclass
class OrderWithCurrency:
    id: int
    currency: str


def test_values_that_the_program_could_not_read_are_refused_by_their_field(tmp_path: Path) -> None:
    def table(kind: type[Any]) -> Program:
        return lambda b: b.table("in", Consumed(value_serde=JsonSerde(kind)), Materialized("orders"))

    kafka, config = cluster(), settings(tmp_path)
    run(table(Order), kafka, config)
    topics, kept = dict(kafka.topics), files(tmp_path)
    with pytest.raises(TopologyMismatchError, match=r"store 'orders' holds rows .* the field 'currency' is required"):
        start(table(OrderWithCurrency), kafka, config)
    assert (kafka.topics, files(tmp_path)) == (topics, kept), "nothing was written"


def test_records_of_another_type_that_still_wait_are_refused_until_they_are_read(tmp_path: Path) -> None:
    def through(kind: type[Any]) -> Program:
        named = Repartitioned(name="r", value_serde=JsonSerde(kind))
        return lambda b: b.stream("in").repartition(named).to("out")

    kafka, config = cluster().put("app-r-repartition", b"row"), settings(tmp_path)
    run(through(Order), kafka, config)
    with pytest.raises(
        TopologyMismatchError, match=r"app-r-repartition: the old program .* field 'currency' is required"
    ):
        start(through(OrderWithCurrency), kafka, config)
    kafka.groups["app"] = {("app-r-repartition", 0): 1}
    start(through(OrderWithCurrency), kafka, config)


def test_every_refusal_says_what_to_do(tmp_path: Path) -> None:
    kafka, config = cluster(), settings(tmp_path)
    run(counts, kafka, config)
    with pytest.raises(TopologyMismatchError) as refused:
        start(lambda b: counts(b, "more"), kafka, config)
    told = str(refused.value)
    assert "source 'KSTREAM-SOURCE-in'" not in told, "nobody reads it now, so it is not elsewhere"
    assert "`streams diff` shows all differences" in told
    assert REFUSED in told


def test_what_is_safe_starts_and_is_kept(tmp_path: Path) -> None:
    kafka, config = cluster(), settings(tmp_path)
    run(counts, kafka, config)
    run(lambda b: (counts(b), b.stream("in").filter(lambda v: v).to("out"), copy(b, "more")), kafka, config)
    kept = written_manifest(config.checkpoint_dir)
    assert kept is not None
    assert set(kept["sub_topologies"]) == {"in", "more"}
    assert kept["sub_topologies"]["in"]["stateless"]


def test_a_new_filter_of_a_table_is_named_by_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def rows(builder: StreamsBuilder, limit: int | None = None) -> None:
        table = builder.table("in", materialized=Materialized(name="rows"))
        (table if limit is None else table.filter(lambda v: v > limit)).to_stream().to("out")

    kafka, config = cluster(), settings(tmp_path)
    run(rows, kafka, config)
    start(rows, kafka, config)
    assert not caplog.records
    start(lambda builder: rows(builder, 0), kafka, config)
    start(lambda builder: rows(builder, 10), kafka, config)
    new, narrower = (record.getMessage() for record in caplog.records)
    assert "is a new filter of a table: rows that it holds back stay in the topic 'out' forever" in new
    assert "filters a table by another condition" in narrower


def test_as_long_as_nothing_is_committed_programs_come_and_go(tmp_path: Path) -> None:
    kafka, config = cluster().put("app-in-commits"), settings(tmp_path)
    start(counts, kafka, config)
    start(lambda b: counts(b, name="other"), kafka, config)
    kept = written_manifest(config.checkpoint_dir)
    assert kept is not None
    assert list(kept["sub_topologies"]["in"]["stores"]) == ["other"]


def two(builder: StreamsBuilder) -> None:
    builder.stream("more").merge(builder.stream("in")).group_by_key().count("n", Materialized(name="counts"))


@pytest.mark.parametrize("with_file", [True, False])
def test_a_sub_topology_keeps_the_name_of_its_commits(with_file: bool, tmp_path: Path) -> None:
    """It was called after the first declared topic once; where commits say so, it still is."""
    kafka, config = cluster(), settings(tmp_path)
    start(two, kafka, config)
    file = Path(config.checkpoint_dir) / "topology.json"
    assert written_manifest(config.checkpoint_dir)["sub_topologies"].keys() == {"in"}  # type: ignore[index]
    if with_file:
        file.write_bytes(
            file.read_bytes().replace(b'"sub_topologies": {\n    "in"', b'"sub_topologies": {\n    "more"')
        )
    else:
        file.unlink()
    kafka.commit("app-more-commits", "app", ["counts"])
    application = start(two, kafka, config)
    assert [prepared.sub.name for prepared in application.subs] == ["more"]
    assert orjson.loads(file.read_bytes())["sub_topologies"].keys() == {"more"}


def test_two_names_and_nothing_that_tells_which(tmp_path: Path) -> None:
    kafka, config = cluster(), settings(tmp_path)
    run(two, kafka.commit("app-more-commits", "app"), config)
    assert [one.sub.name for one in start(two, kafka, config).subs] == ["more"], "topology.json tells"
    (Path(config.checkpoint_dir) / "topology.json").unlink()
    kafka.commit("app-in-commits", "app")
    with pytest.raises(TopologyMismatchError, match=r"in, more, and no topology\.json"):
        start(two, kafka, config)


def test_names_known_from_the_file_hold_where_the_commits_are_gone(tmp_path: Path) -> None:
    kafka, config = cluster(), settings(tmp_path)
    run(two, kafka, config)
    file = Path(config.checkpoint_dir) / "topology.json"
    file.write_bytes(file.read_bytes().replace(b'"sub_topologies": {\n    "in"', b'"sub_topologies": {\n    "more"'))
    kafka.delete_topics(["app-in-commits"])
    assert [one.sub.name for one in plan_application(built(two), config, kafka).subs] == ["more"]


def through(name: str | None) -> Program:
    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream("in")
        (stream if name is None else stream.repartition(Repartitioned(name=name))).to("out")

    return program


def test_what_was_not_read_from_a_repartition_topic_is_not_left_behind(tmp_path: Path) -> None:
    kafka, config = cluster(), settings(tmp_path)
    run(through("r"), kafka.put("app-r-repartition", b"row", b"row"), config)
    kafka.groups["app"] = {("app-r-repartition", 0): 1}
    with pytest.raises(TopologyMismatchError, match=r"app-r-repartition: the old program.*until its lag is 0"):
        start(through(None), kafka, config)
    kafka.groups["app"] = {("app-r-repartition", 0): 2}
    start(through(None), kafka, config)


def test_another_applications_commits_are_refused(tmp_path: Path) -> None:
    """`a` with the sub-topology `b-c` and `a-b` with `c` make the same names, also of transactional ids."""
    kafka = Cluster().put("b-c").put("c").put("out")
    kafka.put("a-b-c-commits", partition=0, partitions=2)
    first = StreamsConfig(application_id="a", bootstrap_servers="nowhere:1", base_dir=tmp_path)
    second = first.model_copy(update={"application_id": "a-b", "checkpoint_dir": str(tmp_path / "second")})
    start(lambda b: copy(b, "b-c"), kafka, first)
    kafka.put("a-b-c-commits", b"", partition=1)
    kafka.topics["a-b-c-commits"][1] = list(Cluster().commit("x", "a").topics["x"][0])
    start(lambda b: copy(b, "b-c"), kafka, first)
    with pytest.raises(ChangelogMismatchError, match="'a-b-c-commits': it holds commits of the application 'a'"):
        start(lambda b: copy(b, "c"), kafka, second)


def test_another_applications_checkpoint_is_refused(tmp_path: Path) -> None:
    kafka, config = cluster(), settings(tmp_path)
    run(counts, kafka, config)
    before = files(tmp_path)
    with pytest.raises(CheckpointMismatchError, match="belongs to another application id, 'app'"):
        start(copy, kafka, config.model_copy(update={"application_id": "other"}))
    assert files(tmp_path) == before


def test_half_a_reset_is_not_started_on(tmp_path: Path) -> None:
    kafka, config = cluster(), settings(tmp_path)
    run(counts, kafka, config)
    note_reset(config.checkpoint_dir, ["app-in-commits"])
    with pytest.raises(ResetUnfinishedError, match="`streams reset app` again"):
        start(counts, kafka, config)


def test_a_pattern_finds_all_but_what_the_engine_has_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is left out because it is known to be the application's own, not because of how its name begins and ends."""
    kafka, config = cluster(), settings(tmp_path)
    monkeypatch.setattr("streams.application.prepare.CommandLog", lambda *_, **__: kafka)
    for topic in ("app-x", "app-users-changelog", "app-counts-changelog", "app-app-pattern-commits"):
        kafka.put(topic)
    # Of a program that this application ran before.
    kafka.commit("app-gone-commits", "app", ["old"]).put("app-old-changelog", b"row")

    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream(re.compile("app-.*"), Consumed(name="s"))
        stream.group_by_key().count("n", Materialized(name="counts"))

    (prepared,) = start(program, kafka, config).subs
    assert prepared.sub.topics == ("app-users-changelog", "app-x")
    with pytest.raises(ConfigError, match="topic of dead letters 'app-x' is read by this application"):
        check_dead_letter_topic("app-x", start(program, kafka, config).plan, kafka)


def test_diff_and_start_agree(tmp_path: Path) -> None:
    for at, (before, after, _) in enumerate(OTHER_PROGRAMS.values()):
        kafka, config = cluster().put("a"), settings(tmp_path / str(at))
        run(before, kafka, config)
        kept = written_manifest(config.checkpoint_dir)
        assert kept is not None
        assert any(change.refused and not change.depends for change in compare(kept, built(after)))


def test_an_unreadable_manifest_counts_as_missing(tmp_path: Path) -> None:
    config = settings(tmp_path)
    for text in ("{", "[1]", '{"format": 99}', '{"format": 1}'):
        Path(config.checkpoint_dir).mkdir(parents=True, exist_ok=True)
        (Path(config.checkpoint_dir) / "topology.json").write_text(text)
        assert written_manifest(config.checkpoint_dir) is None
    kafka = cluster()
    remote = settings(tmp_path, checkpoint_dir="s3://bucket/app")
    assert write_manifest(run(counts, kafka, remote).plan, "s3://bucket/app") is None


def test_a_topology_is_planned_once_per_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka, config = cluster(), settings(tmp_path, execution=Execution.MICRO_BATCH)
    planned: list[Any] = []

    def watched(topology: Any, names: Any) -> list[str]:
        planned.append(names)
        return in_run_order(topology, names)

    def program(builder: StreamsBuilder) -> None:
        builder.stream(re.compile("i.")).group_by_key().count(materialized=Materialized(name="counts"))

    start(program, kafka, config)
    monkeypatch.setattr("streams.topology.plan.in_run_order", watched)
    application = start(program, kafka, config)
    assert len(planned) == len(application.plan.sub_topologies) == 1


def test_another_number_of_tasks_is_refused_with_the_command_to_run(tmp_path: Path) -> None:
    kafka, config = cluster(), settings(tmp_path)
    run(counts, kafka, config)
    topics, kept = dict(kafka.topics), files(tmp_path)
    with pytest.raises(
        ChangelogMismatchError, match="`streams rescale MODULE:TOPOLOGY -a app --tasks 3` moves the state"
    ):
        start(counts, kafka, settings(tmp_path, tasks=3))
    assert (kafka.topics, files(tmp_path)) == (topics, kept), "nothing was written"


def test_an_unfinished_rescale_is_finished_first(tmp_path: Path) -> None:
    kafka, config = cluster(), settings(tmp_path)
    run(counts, kafka, config)
    kafka.put("app-in-rescale")
    with pytest.raises(RescaleUnfinishedError, match=r"a rescale of app was started .*topic app-in-rescale"):
        start(counts, kafka, config)


def test_the_topics_of_an_unfinished_rescale_belong_to_the_application() -> None:
    described = {"sub_topologies": {"in": {"stores": {"counts": {"logged": True}}}}, "repartition_topics": {}}
    assert {"app-in-rescale", "app-counts-changelog-rescale"} < described_topics(described, "app")
