"""A demonstration: real flights on real Kafka and Spark, a worker killed, the state deleted, and the results still exact.

    python -m topologies.demo

Half of the year is loaded and processed; the local state is deleted; the rest is loaded and processed while a busy
worker is killed. Then the results are read back and compared with a recomputation in plain pandas, and the page and the
stores are served: in a terminal until Ctrl-C. Exit code 0 only if the results are equal.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from streams.application.reset import plan_reset, reset
from streams.broker import EmbeddedBroker
from streams.cli.command import readable_errors
from streams.cli.options import Bootstrap, PropertiesFile, Property, client_properties, printable
from streams.config import StreamsConfig, load_config
from topologies import flight_delays, flights_data, flights_report, records
from topologies.comparison import compare
from topologies.demo_look import free_port, served
from topologies.flights_data import FlightData
from topologies.flights_expected import Table, expected_delays_by_carrier, expected_weather_hours
from topologies.submitted import KilledWorker, submit

APPLICATION_ID = "flight-delays-demo"
INPUTS = (flights_data.FLIGHTS, flights_data.WEATHER, flights_data.AIRLINES, flights_data.PLANES)
OUTPUTS = (flight_delays.DELAYS_BY_CARRIER, flight_delays.WORST_WEATHER_HOURS)
RUN = ("--available-now", "--set", "execution=auto", "--set", "commit_interval_ms=1000")
"""How the topology runs. Nobody waits for single results here, and fewer commits take less CPU."""
SHOWN_DIFFERENCES = 10
SCRIPT = Path(flight_delays.__file__)
WIDTH = 120
"""The width of the tables if there is no terminal."""


@dataclass
class Demo:
    """One run of the demonstration.

    Attributes:
        client: Kafka client properties.
        connection: The same properties as command line options.
        folder: The folder for state and checkpoint.
        console: Where to print.
        page_port: Where the page is served, while the application runs and afterwards.
    """

    client: Mapping[str, str]
    connection: list[str]
    folder: Path
    console: Console
    page_port: int = field(default_factory=free_port)
    _begin: float = field(default_factory=time.monotonic)

    def run(self, data: FlightData) -> bool:
        """Runs the whole demonstration; True if the results were exact."""
        first, second = data.halves()
        records.create_topics(self.client, [*INPUTS, *OUTPUTS])
        self.say("1. Load airlines, planes and the first half of the flights, and process them")
        self.load("airlines and planes", data.tables())
        self.load("first half of flights and weather", first.streams())
        self.process(kill_worker=False)
        self.say("2. Delete the local state")
        deleted = self.delete_state()
        self.say("3. Load the second half, process it, and kill a busy worker meanwhile")
        self.load("second half of flights and weather", second.streams())
        killed = self.process(kill_worker=True)
        self.say("4. Read the results and compare them with pandas")
        carriers, hours = (records.read_table(self.client, topic) for topic in OUTPUTS)
        self.show(carriers, hours)
        return self.verdict(data, carriers, hours, killed, deleted)

    def say(self, text: str) -> None:
        """Prints a heading with the time since the start."""
        self.console.rule(f"[bold]{text}[/]  [dim]{time.monotonic() - self._begin:.0f} s[/]", align="left")

    def load(self, title: str, parts: list[records.Records]) -> None:
        """Writes records to Kafka."""
        with records.shown(title, sum(map(len, parts)), self.console) as advance:
            records.produce(self.client, parts, advance)

    def process(self, kill_worker: bool) -> KilledWorker | None:
        """Runs the topology over the existing input."""
        killed = submit(
            SCRIPT,
            [*self.options, *RUN, "--ui", str(self.page_port)],
            kill_worker,
        )
        if killed is not None:
            self.console.print(
                f"[yellow]Killed[/] Python worker {killed.pid} (SIGKILL) in the middle of its work, after "
                f"{killed.cpu_s:.1f} s of CPU time.",
                highlight=False,
            )
        return killed

    @property
    def options(self) -> list[str]:
        """The options that name the application and its cluster."""
        return [*self.connection, "--application-id", APPLICATION_ID, "--base-dir", str(self.folder)]

    def look(self, wait: bool) -> None:
        """Serves the page and the stores, and shows a query with its answer."""
        self.say("5. The page, and a query")
        serving = served(SCRIPT, self.options, self.page_port, self.folder / "serve.log")
        with self.console.status("Copying the stores") as status, serving as look:
            status.stop()
            (row,) = look.answer()["rows"]
            self.console.print(f"The last day of JetBlue at JFK: {row['value']}", markup=False)
            self.console.print(f"Served by: {shlex.join(look.command)}", markup=False, highlight=False, soft_wrap=True)
            ends = "until Ctrl-C" if wait else "until now; with --look until Ctrl-C"
            self.console.print(
                f"Page ({ends}): {look.page}\nQuery: curl '{look.query}'", highlight=False, soft_wrap=True
            )
            with suppress(KeyboardInterrupt):
                while wait:
                    time.sleep(1)

    def delete_state(self) -> int:
        """Deletes the folder with the RocksDB stores, and returns its size in bytes."""
        state = settings(self.client, self.folder).state_dir
        size = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
        shutil.rmtree(state)
        self.console.print(f"[yellow]Deleted[/] {state} with {size / 1e6:.1f} MB of stores.", highlight=False)
        return size

    def show(self, carriers: Table, hours: Table) -> None:
        """Prints the results as tables."""
        self.console.print(flights_report.worst_weather_hours(hours.values()))
        self.console.print(flights_report.most_cancelled_hours(hours.values()))
        self.console.print(flights_report.carriers_by_delay(carriers.values()))

    def verdict(
        self, data: FlightData, carriers: Table, hours: Table, killed: KilledWorker | None, deleted: int
    ) -> bool:
        """Compares the results with pandas and prints the verdict; True if they are exact and every step was shown."""
        exact = True
        for topic, expected, actual in (
            (flight_delays.DELAYS_BY_CARRIER, expected_delays_by_carrier(data), carriers),
            (flight_delays.WORST_WEATHER_HOURS, expected_weather_hours(data), hours),
        ):
            differences = compare(expected, actual)
            exact = exact and not differences
            flights = sum(row["flights"] for row in expected.values())
            result = "[red]different[/]" if differences else "[green]exact[/]"
            self.console.print(f"{topic}: {len(expected):,} rows of {flights:,} flights, {result}", highlight=False)
            for line in differences[:SHOWN_DIFFERENCES]:
                self.console.print(f"  {line}", markup=False, highlight=False)
            if len(differences) > SHOWN_DIFFERENCES:
                self.console.print(f"  … and {len(differences) - SHOWN_DIFFERENCES:,} more differences")
        if killed is None:
            self.console.print("[red]No worker was busy long enough to be killed[/]: that part was not shown.")
        shown = exact and killed is not None and deleted > 0
        if shown:
            self.console.print(
                "[bold green]Exact[/]: a worker was killed in the middle of its work and all local state was deleted "
                "on the way, and every row equals the pandas recomputation (counts equal, means to 1e-9)."
            )
        return shown


@contextmanager
def cluster(given: Mapping[str, str], folder: Path, keep: bool, console: Console) -> Iterator[dict[str, str]]:
    """The client properties of the user's cluster, or of an embedded broker that ends with this program."""
    if given.get("bootstrap.servers"):
        try:
            yield dict(given)
        finally:
            if not keep:
                remove(given, folder, console)
        return
    broker = EmbeddedBroker(folder / "broker", die_with_parent=not keep)
    try:
        with console.status("Starting the embedded Kafka broker"):
            broker.start()
        console.print(f"Embedded Kafka broker: {broker.bootstrap_servers}", highlight=False)
        yield {**given, "bootstrap.servers": broker.bootstrap_servers}
    finally:
        if not keep:
            broker.stop(delete=True)


def settings(client: Mapping[str, str], folder: Path) -> StreamsConfig:
    """The settings of the application."""
    servers = client["bootstrap.servers"]
    kafka = {key: value for key, value in client.items() if key != "bootstrap.servers"}
    options = {"application_id": APPLICATION_ID, "bootstrap_servers": servers, "kafka": kafka, "base_dir": folder}
    return load_config(options=options)


def remove(given: Mapping[str, str], folder: Path, console: Console) -> None:
    """Deletes what the demo has created on the user's cluster."""
    with KafkaAdmin(given) as admin:
        config = settings(given, folder)
        log = LiveKafka(config.client, config.transaction_timeout_ms)
        reset(plan_reset(config, admin, log), admin, lambda line: None)
        admin.delete_topics([*INPUTS, *OUTPUTS])
    console.print("Deleted the topics and the consumer group of the demo.", highlight=False)


@readable_errors
def main(
    flights: Annotated[int | None, typer.Option(min=1_000, help="Only the first so many flights of the year.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave broker, topics and folder for a look around.")] = False,
    look: Annotated[
        bool | None, typer.Option(help="Serve the page and the stores until Ctrl-C. Default: in a terminal.")
    ] = None,
    bootstrap_servers: Bootstrap = None,
    properties: Property = None,
    properties_file: PropertiesFile = None,
) -> None:
    """Show the engine at work: load, process, delete the state, kill a worker, prove the results, clean up."""
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    # Errors are raised; the client library's own log lines would only disturb the output.
    properties = [*(properties or ()), "log_level=3"]
    given = client_properties(bootstrap_servers, properties, properties_file)
    data = flights_data.load()
    data = data.first(flights) if flights else data
    folder = Path(tempfile.mkdtemp(prefix="streams-demo-"))
    try:
        with cluster(given, folder, keep, console) as client:
            connection = ["--bootstrap-servers", client["bootstrap.servers"]]
            connection += [part for text in properties for part in ("--property", text)]
            connection += ["--properties-file", str(properties_file)] if properties_file else []
            demo = Demo(client, connection, folder, console)
            exact = demo.run(data)
            demo.look(console.is_terminal and sys.stdin.isatty() if look is None else look)
            if keep:
                console.print(f"Kept: Kafka at {printable(client)}; state and checkpoint in {folder}", highlight=False)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    raise typer.Exit(0 if exact else 1)


if __name__ == "__main__":
    typer.run(main)
