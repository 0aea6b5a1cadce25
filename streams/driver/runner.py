"""Runs an application: prepares topics, starts Spark and one query for each sub-topology, shows progress, stops cleanly."""

from __future__ import annotations

import threading
import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming import StreamingQuery

from state.changelog import commits_topic
from state.errors import CheckpointMismatchError
from state.kafka.admin import KafkaAdmin, TransientRetry
from state.kafka.topics import TopicPartition
from state.machine_code import kernels_compiled
from state.secrets import mask
from streams.application.dead_letters import dead_letter_topics
from streams.application.execution import Executions, LiveStart, Switch, may_run_live, obstacle, ways_of
from streams.application.given_tables import given_rows, records_of, write_rows
from streams.application.instances import check_not_running, only_instance, shown_as_running
from streams.application.jobs import query_job
from streams.application.owned_topics import local_folder, write_manifest
from streams.application.pausing import Pausing
from streams.application.placements import Placements, Undecided
from streams.application.prepare import PreparedSub, kafka_of, written_ends
from streams.application.start import Preflight, check_places, prepare_start
from streams.checkpoint.files import CheckpointFiles, LocalFiles
from streams.checkpoint.files import is_local as is_on_disk
from streams.config import Execution, StreamsConfig
from streams.driver.checkpoint_files import checkpoint_files
from streams.driver.delta import check_delta, fetch_delta
from streams.driver.executors import await_executors, is_local, tasks_at_once
from streams.driver.java import Planning, check_java, has_gone, needs_java, write_files_without_processes
from streams.driver.launch.ahead import start_session, starts_ahead
from streams.driver.launch.java_process import command_for
from streams.driver.launch.settings import session_settings, spark_settings
from streams.driver.leases import LeaseWatch, UnreadPartitions, held_slots
from streams.driver.live import LEASE_S, LiveDriver, start_live
from streams.driver.live_query import LiveQuery
from streams.driver.progress import Progress, progress_for
from streams.driver.queries import Report, Supervisor, start_query
from streams.driver.reports import (
    BrokerWatch,
    DeadLetterEvents,
    OtherUnitEvents,
    PauseEvents,
    driver_address,
    log_steps,
    pauses_reader,
    probe_of,
)
from streams.driver.session import check_session, processes_of, readers_of, session_itself
from streams.driver.source import source_class
from streams.driver.stopping import Query, StopGate, stopped_by_signals
from streams.engine.live.alignment import Alignment, readings
from streams.engine.live.ends import RunEnd
from streams.engine.live.slot import LiveJob, LiveSub, most_slots, slots_for
from streams.engine.source.log import now_ms
from streams.engine.source.offsets import FirstBatch, SourceOffsets
from streams.engine.source.pauses import LeftLive
from streams.engine.spark.worker import start_workers
from streams.engine.step.job import QueryJob
from streams.errors import ApplicationFailedError, KeyPlacementError, NewPartitionsError, StreamsError
from streams.logs.events import (
    FAILED,
    LEFT_LIVE,
    NOT_LIVE,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TOPICS_CREATED,
    Event,
    EventListener,
    Events,
)
from streams.logs.json_lines import fields_logged_once
from streams.logs.output import set_up_program
from streams.metrics.application import RestoreFigures, StepFigures, StoreRestore
from streams.metrics.export import serving
from streams.metrics.recorder import START
from streams.metrics.reports import RESTORING
from streams.topology.topology import Topology
from streams.ui.history import History
from streams.ui.running import page_of_running
from streams.version import __version__
from streams.wording import counted

_Answer = TypeVar("_Answer")
_REQUEST_S = 10.0


class _StopRequestedError(Exception):
    """Raised if the application should stop while it waits for a broker."""


class StreamsApplication:
    """A topology with its settings, ready to run on Spark.

    Example:
        >>> application = StreamsApplication(build(), load_config(Path("app.toml")))
        >>> application.run()

    Args:
        on_running: Called once all queries that can run have been started.
        until_ms: With `available_now`: reading ends at the first record at or past this time, ms; None: at the ends of the topics.
        target: The program as named on the command line, for the commands that the page shows.

    Guarantees: every result is visible exactly once to `read_committed` readers, no matter which process dies, and when.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        progress: Progress | None = None,
        on_running: Callable[[], object] = lambda: None,
        until_ms: int | None = None,
        on_event: EventListener | None = None,
        target: str = "TARGET",
    ) -> None:
        self._until_ms = until_ms
        self._target = target
        self.topology = topology
        self.config = config
        self.progress = progress or progress_for(config)
        self._history = History()
        # As JSON, an event is a log line already.
        self.events = Events(config.application_id, None if config.logs.json else self.progress.say, self._happened)
        self._on_event = on_event
        self._dead_letters = DeadLetterEvents(self.events, config.dead_letter_topic)
        self._other_units = OtherUnitEvents(self.events)
        if config.logs.json:
            self.progress.metrics.listen(log_steps)
        self._read_pauses, close_reader = pauses_reader(config)
        self._pauses = PauseEvents(
            config.application_id, self.events, self._read_pauses, close_reader, self._tell_pauses
        )
        self._on_running = on_running
        self._stop = threading.Event()
        self._gates: dict[str, StopGate] = {}
        self._micro_batches = 0
        self._until: Mapping[tuple[str, int], int] = {}
        self._first: Mapping[str, FirstBatch] = {}
        self._read: dict[str, SourceOffsets] = {}
        self._watch: BrokerWatch | None = None
        self._driver: LiveDriver | None = None
        self._run_end: RunEnd | None = None
        self._left_live: set[str] = set()
        self._may_replace_files = False
        self._session_of_user = False
        self._local_files = False

    def stop(self) -> None:
        """Makes `run` stop its queries and return; thread-safe."""
        if not self._stop.is_set():
            self._stop.set()
            self.progress.metrics.obstacle("stop", "the application is stopping")
            self.events.emit(STOPPING, "stopping: the steps that run are finished")

    def run(self, session: SparkSession | None = None) -> None:
        """Runs until stopped; with `available_now`, until all input that existed at the start is processed.

        Raises:
            StreamsError: The application failed, or the session has a setting that cannot work. The Spark error is the
                cause of this one.
        """
        app = self.config.application_id
        set_up_program(self.config.logs, app)
        self.events.emit(STARTING, f"{app} is starting", version=__version__, mode=self.config.mode.value)
        metrics, say = self.progress.metrics, self.progress.say
        with (
            serving(self.config, metrics, say),
            page_of_running(self.config, self.topology, metrics, self._history, say, self._target),
        ):
            try:
                self._run(session)
            except KeyboardInterrupt:
                # Before it was running: a signal interrupts any wait of the start.
                self._interrupted()
            except BaseException as error:
                self.progress.metrics.failed(mask(str(error)))
                self.events.emit(FAILED, f"{app} has ended with an error: {error}", error=fields_logged_once(error))
                raise
            finally:
                self._dead_letters.report(all_of_them=True)
            self.progress.metrics.obstacle(START, "the application has ended")
        self.events.emit(STOPPED, f"{app} has ended", micro_batches=self._micro_batches)

    def _happened(self, event: Event) -> None:
        self._history.happened(event)
        if self._on_event is not None:
            self._on_event(event)

    def _run(self, session: SparkSession | None) -> None:
        # Settings that cannot work are refused before anything is created in Kafka.
        spark_settings(self.config.spark, self.config.checkpoint_dir)
        check_places(self.config)
        if session is None:
            check_java()
        else:
            check_session(session, self.progress.say)
            if self.topology.needs_delta:
                check_delta(session)
        self._application, self._counts, pauses = prepare_start(
            self.topology,
            self.config,
            lambda topic: self.events.emit(TOPICS_CREATED, f"created topic {topic}", topic=topic),
        )
        self._pauses.take(pauses)
        self._left_live = set(pauses.left_live)
        letters = ", ".join(dead_letter_topics(self.topology, self.config.dead_letter_topic))
        self.progress.dead_letters = f"`streams dlq list {self._target}` shows them ({letters})"
        with only_instance(self.config), stopped_by_signals(self._interrupted), self.progress:
            if self._stop.is_set():
                return
            topology = self._application.plan.topology
            names = [prepared.sub.name for prepared in self._application.subs]
            # Spark may be planning queries of the user, in whose session this one runs, and those of ingests and lakes.
            theirs = session is not None or (SparkContext._active_spark_context is not None and not starts_ahead())
            others = theirs or bool(topology.ingests or topology.lake_sinks)
            with closing(Planning(self.config.application_id, names, others)) as self._planning:
                self._run_on_spark(session)

    def _run_on_spark(self, session: SparkSession | None) -> None:
        if session is None:
            first = "" if kernels_compiled() else ", and compiling kernels: a minute or two, once on this machine"
            self.progress.starting(f"starting Spark{first}")
        self._session_of_user = session is not None
        # The topics are looked up while Spark starts, unless this needs Spark's settings.
        self._local_files = session is None and self._starts_plainly()
        if self._local_files:
            self._look()
        with needs_java(self._stop.is_set):
            self._spark = spark = session or self._start_session()
            self._may_replace_files = session is None and is_local(spark.sparkContext.master)
            try:
                # Installed again, because pyspark replaces the handler for Ctrl-C by its own when it starts.
                with stopped_by_signals(self._interrupted):
                    start_workers(spark, sql=not may_run_live(self.config))
                    self._run_queries()
            finally:
                if session is None and not has_gone():
                    with warnings.catch_warnings():
                        # If Java ends just now, too, there is nothing left to do.
                        warnings.filterwarnings("ignore", "Unable to cleanly shutdown", RuntimeWarning)
                        spark.stop()

    def _started(self) -> None:
        self.progress.has_begun()
        names = list(self.progress.subs)
        self.events.emit(RUNNING, f"running: {', '.join(names)}", sub_topologies=names)
        self.progress.metrics.obstacle(START, None)
        self._on_running()

    def _start_session(self) -> SparkSession:
        config, delta = self.config, self.topology.needs_delta
        if delta:
            fetch_delta(self.progress.say)
        # Whether anything needs SQL turns out later.
        return start_session(config.application_id, config.spark, config.checkpoint_dir, delta=delta, late=not delta)

    def _starts_plainly(self) -> bool:
        """Whether Spark starts without settings of a cluster, and the checkpoint is on this machine's disk."""
        config, delta = self.config, self.topology.needs_delta
        if delta or not is_on_disk(config.checkpoint_dir):
            return False
        settings = session_settings(config.application_id, config.spark, config.checkpoint_dir)
        return command_for(settings) is not None

    @property
    def _commits(self) -> list[str]:
        return [commits_topic(self.config.application_id, one.sub.name) for one in self._application.subs]

    def _look(self) -> None:
        """Looks up where the sub-topologies begin."""
        with KafkaAdmin(self.config.client) as admin:
            self._first = self._checked(admin, self._commits)

    def _run_queries(self) -> None:
        subs = self._application.subs
        if not self._local_files:
            self._look()
        topics = sorted({topic for prepared in subs for topic in prepared.sub.topics})
        servers, tell = self.config.client["bootstrap.servers"], partial(self.progress.metrics.obstacle, "broker")
        probe, close_probe = probe_of(self.config.client, topics)
        with (
            suppress(_StopRequestedError),
            BrokerWatch(probe, self.events, servers, tell=tell, close=close_probe) as self._watch,
            self._pauses,
            shown_as_running(self.config, self._commits),
        ):
            if self._stop.is_set():
                return
            self._write_given_tables()
            ingests = self._ingest_starts()
            lakes = self._lake_starts()
            if not self.config.available_now:
                self._run_on([*ingests, *lakes])
                return
            if ingests:
                self._await(ingests)
            self._run_on([])
            if lakes and not self._stop.is_set():
                # The records that the steps have left in the internal topics of the sinks.
                self._ask(self._application.await_lake_topics)
                self._await(lakes)

    def _run_on(self, others: list[Callable[[], Query]]) -> None:
        """Runs the sub-topologies, live or in micro-batches, until the application should stop or has read its existing input."""
        refused: dict[str, str] = {}
        running = False
        while not self._stop.is_set():
            # The execution that an operator asks for now. Once it changes, the queries end and this loop begins again.
            asked = self._pauses.execution
            config = self.config if asked is None else self.config.model_copy(update={"execution": Execution(asked)})
            self._application = replace(self._application, config=config)
            if config.available_now and may_run_live(config) and not self._until:
                self._until = self._ask(partial(self._application.ends, time_ms=self._until_ms))
            # A user's own session may also run the user's queries.
            shared = bool(others) or self._session_of_user
            ways, starts = self._ways(shared, refused, running)
            running = True
            if back := self._left_live & {one.sub.name for one in ways.live}:
                self._note_left(dict.fromkeys(back))
            if self._stop.is_set():
                return
            with self._listener(bool(ways.live)) as self._driver:
                if config.available_now and not ways.live:
                    self._run_once()
                    return
                batches = [partial(self._start, prepared) for prepared in ways.micro_batch]
                shared = shared or bool(batches)
                live = [partial(self._start_live, ways.live, starts, shared)] if ways.live else []
                try:
                    undecided = self._undecided(ways.live)
                    self._await(
                        [*others, *batches, *live],
                        partial(self._is_over, asked, undecided),
                    )
                    if undecided is not None and undecided.found is not None:
                        self._application = undecided.found
                        write_manifest(undecided.found.plan, self.config.checkpoint_dir, undecided.found.placements)
                    elif self._pauses.execution == asked:
                        self._trim(ways.live)
                        return
                    with KafkaAdmin(self.config.client) as admin:
                        self._first = self._firsts(admin)
                except ApplicationFailedError as error:
                    refused |= self._continued_otherwise(error, ways.live)

    def _listener(self, live: bool) -> AbstractContextManager[LiveDriver | None]:
        """The listener for messages of workers.

        Connections from micro-batches only show running restores, and nothing depends on them.
        """
        config = self.config
        if not live and config.metrics_address is None and config.ui_address is None and not config.otel:
            return nullcontext()
        host, bind = driver_address(self._spark)
        try:
            return LiveDriver(host, bind, self._hear)
        except OSError as error:
            if live:
                raise
            self.progress.say(
                f"restores are not in the metrics while they run: no port can be opened at {bind}: {error}"
            )
            return nullcontext()

    def _undecided(self, live: Sequence[PreparedSub]) -> Undecided | None:
        """A watch for records that decide the placements of live sub-topologies; None: all placements are decided."""
        if all(one.placement is not None for one in live):
            return None
        return Undecided(self._application, kafka_of(self.config), self.progress.say)

    def _is_over(self, asked: str | None, undecided: Undecided | None) -> bool:
        """Whether the queries should end: all input is read, another execution is requested, or records have shown a placement."""
        assert self._watch is not None
        if self._is_asked_otherwise(asked) or self._has_read():
            return True
        if undecided is None or self._watch.away or not undecided.due(time.monotonic()):
            return False
        with KafkaAdmin(self.config.client) as admin:
            return undecided.look(admin, time.monotonic())

    def _is_asked_otherwise(self, execution: str | None) -> bool:
        """Whether an operator asks for another execution. False while brokers are away, because no switch could be completed."""
        assert self._watch is not None
        return self._pauses.execution != execution and not self._watch.away

    def _has_read(self) -> bool:
        """Whether a run over the existing input has read all of it. False while brokers are away, because it is unknown."""
        assert self._watch is not None
        if self._run_end is None or self._watch.away:
            return False
        paused = self._pauses.paused(prepared.sub.name for prepared in self._application.subs)
        if not self._run_end.is_reached(paused, lambda topics: self._ask(partial(written_ends, topics=topics))):
            return False
        for sub, positions in self._run_end.positions().items():
            self.progress.metrics.positions(sub, positions)
        return True

    def _trim(self, live: Sequence[PreparedSub]) -> None:
        """Deletes records that a run over existing input has read from repartition topics, which a short run's tasks may not do."""
        if self._run_end is None or self._stop.is_set():
            return
        read = self._run_end.positions()
        with KafkaAdmin(self.config.client) as admin:
            for prepared in live:
                sources = self._preflight(admin).sources(prepared)
                ids = {name: info.topic_id for name, info in sources.described({}).items()}
                # A record of a retry topic that is not due yet was read, and still waits.
                at = {
                    place: at
                    for place, (at, _) in read[prepared.sub.name].items()
                    if place[0] not in prepared.sub.delays
                }
                sources.trim(at, ids)

    def _ways(self, others: bool, refused: Mapping[str, str], running: bool) -> tuple[Executions, dict[str, LiveStart]]:
        """Switches the sub-topologies to their new executions; returns these, and the positions at which the live ones begin.

        Raises:
            ConfigError: With execution=live, a sub-topology cannot run live, and the application is about to start (`running`
                False).
        """
        application = self._application
        topics = {topic for prepared in application.subs for topic in prepared.sub.topics}
        asked, processes = (sorted(topics), self._processes()) if may_run_live(application.config) else ([], 0)
        with KafkaAdmin(self.config.client) as admin:
            partitions = {name: info.partitions for name, info in admin.describe_topics(asked).items()}
            ways = ways_of(application, partitions, processes, others, refused, running)
            self._tell_obstacles({name: why for name, why in ways.obstacles.items() if name not in refused})
            switch = self._switch(admin)
            starts = {}
            for prepared in ways.live:
                name = prepared.sub.name
                start = switch.to_live(prepared, self._first.get(name))
                if start is None:
                    self.progress.say(f"{name}: its last micro-batch is not complete, and runs to its end first")
                    self._finish_batch(prepared, switch.unfinished(prepared))
                    start = switch.to_live(prepared, None)
                if start is not None:
                    starts[name] = start
            for prepared in ways.micro_batch:
                name = prepared.sub.name
                if (first := switch.to_micro_batches(prepared, self._first.get(name))) is not None:
                    self._first = {**self._first, name: first}
        return ways, starts

    def _tell_obstacles(self, obstacles: Mapping[str, str]) -> None:
        """Shows which sub-topologies run in micro-batches although the settings allow live execution, and why."""
        for why in sorted(set(obstacles.values())):
            names = sorted(name for name, one in obstacles.items() if one == why)
            message = f"{', '.join(names)}: in micro-batches, not live: {why}"
            self.events.emit(NOT_LIVE, message, sub_topologies=names, reason=why)

    def _processes(self) -> int:
        """The number of tasks that Spark can run at once for this application, after waiting for the requested executors."""
        await_executors(self._spark, self._stop.is_set)
        return tasks_at_once(self._spark) - held_slots()

    def _finish_batch(self, prepared: PreparedSub, end: SourceOffsets | None) -> None:
        """Runs a sub-topology's unfinished micro-batch to its `end`; None: to the current ends of its topics."""
        ends = end.by_partition() if end is not None else {}
        self._await([partial(self._start, prepared, {"availableNow": True}, ends)])

    def _continued_otherwise(self, error: ApplicationFailedError, live: Sequence[PreparedSub]) -> dict[str, str]:
        """Gives a sub-topology another placement, or lets it leave live execution, if its records require that.

        Returns:
            The name of the sub-topology -> why it left live execution; empty: it did not.

        Raises:
            ApplicationFailedError: The given error, if it requires neither.
        """
        found = self._refused_by(error, live)
        if found is None:
            raise error
        one = next(one for one in live if one.sub.name == found)
        if self._chosen_again(one, error):
            return {}
        self._leave_live(one, error)
        return {found: str(error)}

    @staticmethod
    def _refused_by(error: ApplicationFailedError, live: Sequence[PreparedSub]) -> str | None:
        """The sub-topology that cannot run live after all, because of a key in a wrong partition or new partitions; or None."""
        if vars(error).get("cause") not in (KeyPlacementError.__name__, NewPartitionsError.__name__):
            return None
        return next((one.sub.name for one in live if f"/{one.sub.name}: " in str(error)), None)

    def _chosen_again(self, one: PreparedSub, error: ApplicationFailedError) -> bool:
        """Keeps a sub-topology live with another placement if the first one committed nothing; returns whether it could."""
        record = _record_of(error)
        if record is None:
            return False
        config = self.config
        with KafkaAdmin(config.client) as admin:
            found = Placements(self._application, admin, kafka_of(config), (record,)).chosen_again(one)
            if found is None or not self._switch(admin).unplace(one):
                return False
        assert found.placement is not None, "it was chosen"
        subs = tuple(found if two is one else two for two in self._application.subs)
        self._application = replace(self._application, subs=subs)
        write_manifest(self._application.plan, config.checkpoint_dir, self._application.placements)
        self.progress.say(f"{one.sub.name}: its keys are where {found.placement.value} puts them after all")
        return True

    def _leave_live(self, one: PreparedSub, error: ApplicationFailedError) -> None:
        """Records, here and in Kafka, why a sub-topology continues in micro-batches, and how it comes back."""
        left = self._ask(partial(self._why_left, one, _record_of(error)))
        name, command = one.sub.name, left.command(self._target, self.config.application_id)
        topic, partition, offset = left.record or (None, None, None)
        self.events.emit(
            LEFT_LIVE,
            f"{name} continues in micro-batches: {left.why}. To run it live again: stop the application, `{command}`, and start it",
            name,
            topic=topic,
            partition=partition,
            offset=offset,
            command=command,
        )
        self._note_left({name: left})

    def _why_left(self, one: PreparedSub, record: tuple[str, int, int] | None, admin: KafkaAdmin) -> LeftLive:
        if record is not None:
            return Placements(self._application, admin, kafka_of(self.config)).left_live(one, record, now_ms())
        partitions = {name: info.partitions for name, info in admin.describe_topics(one.sub.topics).items()}
        return LeftLive(now_ms(), obstacle(one, partitions) or "a topic has got more partitions")

    def _note_left(self, subs: Mapping[str, LeftLive | None]) -> None:
        """Notes why sub-topologies left live execution, for `streams status`, the doctor and rescales. Nothing else needs it."""
        config = self.config
        try:
            Pausing(config.application_id, config.client, config.replication_factor).left_live(subs)
        except StreamsError as error:
            self.progress.say(f"Kafka has no note of the sub-topologies that have left live execution: {error}")
        else:
            self._left_live = (self._left_live | subs.keys()) - {name for name, left in subs.items() if left is None}

    def _start_live(self, live: Sequence[PreparedSub], starts: Mapping[str, LiveStart], shared: bool) -> LiveQuery:
        """Starts the query of the live sub-topologies. With `shared`, other queries need a process, too."""
        config, spark, driver = self.config, self._spark, self._driver
        assert driver is not None, "it listens where anything runs live"
        subs = []
        for prepared in live:
            start = starts[prepared.sub.name]
            own = replace(self._job(prepared), unplaced=prepared.placement is None)
            subs.append(LiveSub(own, start.query_id, start.start))
            self._say_without_idle_time(own)
            self.progress.started(prepared.sub.name, prepared.tasks, prepared.sub.topics)
        names = [one.sub.name for one in live]
        ends = config.available_now
        self._run_end = RunEnd([one.sub for one in live], self._until) if ends else None
        driver.align(Alignment({one.sub.name: one.tasks for one in live}, readings([one.sub for one in live])))
        # A slot must not begin before it knows which parts are paused.
        self._tell_pauses()
        job = LiveJob(
            tuple(subs),
            most_slots(subs),
            config.commit_interval_ms / 1000,
            LEASE_S,
            str(uuid.uuid4()),
            driver.address,
            ends,
        )
        # The query has no data source in Python.
        for name in names:
            self._planning.done(name, spark)

        def leased() -> None:
            for name in names:
                self.progress.metrics.begun(name)

        def slots() -> int:
            return slots_for(subs, tasks_at_once(spark) - held_slots(driver) - shared)

        unread = UnreadPartitions(job, config.client, self.events, self.progress.metrics)
        watch = partial(LeaseWatch, possible=slots, missing=unread.missing, close=unread.close)
        query, gate = start_live(spark, config.application_id, job, driver, leased, watch)
        self._gates[query.runId] = gate
        return query

    def _hear(self, message: Mapping[str, Any]) -> None:
        """Handles a message of a worker."""
        sub = message["sub"]
        if RESTORING in message:
            store, *progress = message[RESTORING]
            self.progress.metrics.restoring(sub, message["task"], store, StoreRestore(*progress))
        if "report" in message:
            self._stepped(sub, message["report"]["version"], [message])
        elif "events" in message:
            self.events.reported(sub, message["task"], message["events"])
        if "opened" in message:
            done = message["restored"]
            self.progress.opened(
                sub, message["task"], message["opened"], done and RestoreFigures(**done), again=message["attempt"] > 0
            )
        if "read" in message and self._run_end is not None:
            self._run_end.hear(sub, message["read"])
        if "positions" in message:
            found = {(topic, number): (at, end) for topic, number, at, end in message["positions"]}
            self.progress.metrics.positions(sub, found)
            self.progress.metrics.waits(sub)
        if (driver := self._driver) is not None:
            if message.get("attempt", 0) > 0:
                driver.failed()
            driver.renew()

    def _tell_pauses(self) -> None:
        """Sends the slots the paused sub-topologies; idle slots send no messages that an answer could carry them."""
        if (driver := self._driver) is not None:
            driver.pause(self._pauses.paused(prepared.sub.name for prepared in self._application.subs))

    def _checked(self, admin: KafkaAdmin, commits: list[str]) -> Mapping[str, FirstBatch]:
        """Checks the state, and returns where sub-topologies begin. Without a checkpoint, another process may run them."""
        where = (
            "Stop it first (Ctrl-C or SIGTERM). Then start with its checkpoint: this one would use "
            f"{self.config.checkpoint_dir}"
        )
        files = self._files
        is_new = not all(files.names(prepared.sub.name) for prepared in self._application.subs)
        if is_new or local_folder(self.config.checkpoint_dir) is None:
            check_not_running(self.config, admin, commits, where)
        try:
            return self._firsts(admin)
        except CheckpointMismatchError:
            check_not_running(self.config, admin, commits, where)
            raise

    def _firsts(self, admin: KafkaAdmin) -> Mapping[str, FirstBatch]:
        self._switch(admin).finish(self._application.subs)
        return self._preflight(admin).run()

    def _preflight(self, admin: KafkaAdmin) -> Preflight:
        return Preflight(self._application, self._files, admin, self.progress.say)

    def _switch(self, admin: KafkaAdmin) -> Switch:
        return Switch(self._preflight(admin), self.progress.say)

    @property
    def _files(self) -> CheckpointFiles:
        if self._local_files:
            return LocalFiles(self.config.checkpoint_dir)
        return checkpoint_files(self._spark, self.config.checkpoint_dir)

    def _run_once(self) -> None:
        """Processes the existing input: a later sub-topology reads what an earlier one writes, so it starts after that one.

        Sub-topologies that write for each other (foreign-key joins) run again until nothing is left; input that arrives in the
        meantime is left to the next run.
        """
        application = self._application
        waiting = application.subs
        if self._until_ms is not None and not self._until:
            self._until = self._ask(partial(application.ends, time_ms=self._until_ms))
        while waiting:
            before = self._micro_batches
            for prepared in waiting:
                if self._stop.is_set():
                    return
                if prepared.sub.reads_internal:
                    self._ask(partial(application.await_written, prepared=prepared))
                self._await([partial(self._start, prepared)])
            if self._stop.is_set() or self._micro_batches == before:
                return
            waiting = self._ask(partial(application.unfinished, read=self._read))
            if waiting and not self._until:
                self._until = self._ask(application.ends)

    def _write_given_tables(self) -> None:
        """Brings the global tables whose rows the program gives up to date, before any record is read."""
        config = self.config
        # All are checked before any is written.
        found = [
            (given, records_of(given, lambda: session_itself(self._spark)))
            for given in given_rows(self._application.plan.topology)
        ]
        kafka = kafka_of(config)
        for given, rows in found:
            written, deleted = write_rows(kafka, config.application_id, given, rows, now_ms())
            self.progress.say(
                f"the table '{given.name}' has {counted(len(rows), 'row')}: {written} written, {deleted} deleted"
            )

    def _ingest_starts(self) -> list[Callable[[], Query]]:
        """Functions that start the query of each source outside Kafka; static DataFrames are read at once."""
        if not self._application.plan.topology.ingests:
            return []
        from streams.driver.ingest.query import IngestRun, PauseHold

        self._expect_checkpoints()
        hold = PauseHold(self._read_pauses)
        spark = session_itself(self._spark)
        return IngestRun(spark, self._application, self._trigger(), self._gates, self.progress, hold).starts()

    def _lake_starts(self) -> list[Callable[[], Query]]:
        """Functions that start the query of each lake sink. From now on, the rules of the sinks' tables apply to rows."""
        if not self._application.plan.topology.lake_sinks:
            return []
        from streams.driver.lake.query import LakeRun, faults_from_environment

        self._expect_checkpoints()
        run = LakeRun(
            session_itself(self._spark),
            self._application,
            self._trigger(),
            self._gates,
            self.progress,
            faults_from_environment(),
        )
        starts, self._application = run.starts()
        return starts

    def _expect_checkpoints(self) -> None:
        """Prepares for a query whose checkpoint Spark writes."""
        if self._may_replace_files:
            write_files_without_processes(self._spark)

    def _trigger(self) -> dict[str, Any]:
        if self.config.available_now:
            return {"availableNow": True}
        return {"processingTime": f"{self.config.trigger_interval_ms} milliseconds"}

    def _job(self, prepared: PreparedSub, until: Mapping[TopicPartition, int] | None = None) -> QueryJob:
        return query_job(
            self._application,
            prepared,
            self._counts,
            processes_of(self._spark),
            readers_of(self._spark),
            until=until or self._until,
            first=self._first.get(prepared.sub.name),
            restore_reports=None if self._driver is None else self._driver.address,
        )

    def _start(
        self,
        prepared: PreparedSub,
        trigger: Mapping[str, Any] | None = None,
        until: Mapping[TopicPartition, int] | None = None,
    ) -> StreamingQuery:
        self._expect_checkpoints()
        sub, spark, job = prepared.sub, self._spark, self._job(prepared, until)
        self.progress.started(sub.name, prepared.tasks, sub.topics)
        self._say_without_idle_time(job)

        def report(batch_id: int, reports: list[Report]) -> None:
            self._planning.done(sub.name, spark)
            self._stepped(sub.name, batch_id, reports)

        self._planning.begins(sub.name)
        gate = StopGate()
        begin = partial(self.progress.metrics.begun, sub.name)
        query = start_query(
            spark, job, self.config.checkpoint_dir, trigger or self._trigger(), begin, report, gate, self.make_source
        )
        self._gates[query.runId] = gate
        return query

    def _say_without_idle_time(self, job: QueryJob) -> None:
        if job.settings.idle_timeout_ms is not None and job.sub.reads_internal:
            self.progress.say(f"{job.sub.name} reads what another step writes: idle_timeout_ms has no effect there")

    def _stepped(self, sub: str, batch_id: int, reports: list[Report]) -> None:
        self._micro_batches += 1
        steps = [StepFigures.of(one["report"]) for one in reports]
        self.progress.step(sub, batch_id, steps)
        for step, one in zip(steps, reports, strict=True):
            self.events.reported(sub, step.task, one.get("events", ()))
            self._dead_letters.step(sub, step.counters)
            self._other_units.step(sub, step.counters)

    def make_source(self, job: QueryJob) -> type[DataSource]:
        """The data source of a query; a subclass may plan micro-batches differently."""
        return source_class(job)

    def _await(self, starts: Sequence[Callable[[], Query]], is_over: Callable[[], bool] = lambda: False) -> None:
        """Starts queries and waits for them to end; the first permanent failure stops the others."""
        assert self._watch is not None
        wait_s = self.config.broker_wait_ms / 1000
        self._read |= Supervisor(
            self._stop,
            self._gates,
            self.progress,
            self._watch,
            wait_s,
            on_started=self._started,
            events=self.events,
            is_over=is_over,
        ).run(starts)

    def _ask(self, question: Callable[[KafkaAdmin], _Answer]) -> _Answer:
        """Asks Kafka, and repeats the question while brokers are unreachable."""
        patience = TransientRetry(self.config.broker_wait_ms / 1000, sleep=self._pause)
        with KafkaAdmin(self.config.client, timeout_s=_REQUEST_S) as admin:
            return patience(lambda: question(admin))

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _StopRequestedError

    def _interrupted(self) -> None:
        if not self.config.logs.json:
            self.progress.say("stopping …")
        self.stop()


def _record_of(error: ApplicationFailedError) -> tuple[str, int, int] | None:
    """The place of the record whose key is in the wrong partition; None: the error is about something else."""
    found = vars(error)
    if found.get("cause") != KeyPlacementError.__name__ or "offset" not in found:
        return None
    return found["topic"], found["partition"], found["offset"]
