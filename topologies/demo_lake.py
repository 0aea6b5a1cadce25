"""A demonstration: real flights into a data lake, the application killed right behind a commit, and the tables still exact.

    python -m topologies.demo_lake

The first half of the flights is loaded and written to two Delta tables: each flight (append), and the delays of each day (upsert).
With the second half, the application is killed when a table has a commit that nothing else knows of yet, and started
again. Then Spark SQL queries the tables, as they are now and as they were, and each row is compared with a recomputation in plain
pandas. Exit code 0 only if all are equal.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from streams.broker import EmbeddedBroker, fetch_jars
from streams.cli.command import readable_errors
from streams.driver.lake.query import VARIABLE
from topologies import flights_data, flights_lake, records
from topologies.comparison import compare
from topologies.flights_data import FlightData
from topologies.flights_expected import expected_daily_delays
from topologies.submitted import RunFailedError, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

APPLICATION_ID = "flights-lake-demo"
FLIGHTS = 40_000
"""How many flights there are by default, so that the demonstration takes a minute or two."""
WIDTH = 120
"""The width of the tables if there is no terminal."""
SHOWN_DIFFERENCES = 10


@dataclass
class LakeDemo:
    """One run of the demonstration.

    Attributes:
        client: Kafka client properties.
        folder: The folder for state, checkpoint and tables.
        console: Where to print.
    """

    client: Mapping[str, str]
    folder: Path
    console: Console
    _begin: float = field(default_factory=time.monotonic)
    _halfway: float = field(default=0.0, init=False)

    def run(self, data: FlightData) -> bool:
        """Runs the whole demonstration; True if the tables were exact."""
        first, second = data.halves()
        records.create_topics(self.client, [flights_data.FLIGHTS])
        self.say("1. Load the first half of the flights, and write them to the lake")
        self.load("first half of flights", first)
        self.process()
        self.say("2. Load the second half, and kill the application right behind a commit to a table")
        self._halfway = time.time()
        self.load("second half of flights", second)
        killed = self.process(crash="table_committed:1")
        self.say("3. Start it again")
        self.process()
        self.say("4. Query the tables by Spark SQL, and compare them with pandas")
        with self.session() as spark:
            return self.verdict(spark, first, data) and killed

    def say(self, text: str) -> None:
        """Prints a heading with the time since the start."""
        self.console.rule(f"[bold]{text}[/]  [dim]{time.monotonic() - self._begin:.0f} s[/]", align="left")

    def load(self, title: str, data: FlightData) -> None:
        """Writes flights to Kafka."""
        parts = [part for part in data.streams() if part.topic == flights_data.FLIGHTS]
        with records.shown(title, sum(map(len, parts)), self.console) as advance:
            records.produce(self.client, parts, advance)

    def process(self, crash: str = "") -> bool:
        """Runs the topology over the existing input, in a process of its own.

        Args:
            crash: The point at which the process kills itself with SIGKILL, as a crash would at the worst moment.

        Returns:
            Whether the process was killed.

        Raises:
            RunFailedError: The process ended with an error.
        """
        command = [
            *(sys.executable, "-m", "streams", "run", flights_lake.__file__),
            *("--bootstrap-servers", self.client["bootstrap.servers"], "--application-id", APPLICATION_ID),
            *("--base-dir", str(self.folder), "--available-now"),
        ]
        variables = {
            **environment(),
            flights_lake.LAKE: str(self.folder / "lake"),
            **({VARIABLE: crash} if crash else {}),
        }
        code = subprocess.run(command, env=variables, check=False).returncode
        if code not in (0, -signal.SIGKILL):
            raise RunFailedError(f"the application ended with exit code {code}; what it said is above.")
        if code:
            self.console.print(
                "[yellow]Killed[/] the application (SIGKILL): a table has the commit, and nothing else knows of it.",
                highlight=False,
            )
        return code != 0

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """A Spark session with Delta Lake."""
        from streams.driver.launch.ahead import start_session

        options = {"spark.master": "local[2]", "spark.sql.warehouse.dir": str(self.folder / "warehouse")}
        spark = start_session("demo-lake", options, str(self.folder), delta=True)
        for name in (flights_lake.DEPARTURES, flights_lake.DAILY_DELAYS):
            spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{self.folder / 'lake' / name}'")
            spark.sql(f"DESCRIBE HISTORY {name}").createOrReplaceTempView(f"{name}_history")
        try:
            yield spark
        finally:
            spark.stop()

    def verdict(self, spark: SparkSession, first: FlightData, data: FlightData) -> bool:
        """Shows the tables, and compares them with pandas; True if they are exact."""
        self.show("Most delayed carriers", spark.sql(MOST_DELAYED))
        self.show("The table's own history of upserts", spark.sql(HISTORY))
        then = spark.sql(f"SELECT count(*) AS flights FROM {flights_lake.DEPARTURES} VERSION AS OF {self.half(spark)}")
        (row,) = then.collect()
        self.console.print(f"Time travel: before the second half there were {row.flights:,} flights.", highlight=False)
        travelled = row.flights == len(first.flights)
        found = {"|".join(row[:3]): row.asDict() for row in spark.sql(DAILY).collect()}
        differences = compare(expected_daily_delays(data), found)
        (row,) = spark.sql(TOTALS).collect()
        delays = data.flights["dep_delay"]
        totals = (row.flights, row.cancelled, row.delay) == (len(delays), int(delays.isna().sum()), int(delays.sum()))
        self.console.print(f"{flights_lake.DEPARTURES}: {row.flights:,} rows, {_result(totals)}", highlight=False)
        self.console.print(
            f"{flights_lake.DAILY_DELAYS}: {len(found):,} rows, {_result(not differences)}", highlight=False
        )
        for line in differences[:SHOWN_DIFFERENCES]:
            self.console.print(f"  {line}", markup=False, highlight=False)
        exact = totals and travelled and not differences
        if exact:
            self.console.print(
                f"[bold green]Exact[/]: the application was killed behind a commit, and every row equals the pandas "
                f"recomputation.  [dim]{time.monotonic() - self._begin:.0f} s[/]"
            )
        return exact

    def half(self, spark: SparkSession) -> int:
        """The last version of the table of departures before the application was killed."""
        versions = spark.sql(
            f"SELECT version, double(timestamp) AS at FROM {flights_lake.DEPARTURES}_history"
        ).collect()
        return max(int(row.version) for row in versions if row.at <= self._halfway)

    def show(self, title: str, frame: DataFrame) -> None:
        """Prints a DataFrame as a table."""
        table = Table(*frame.columns, title=title, title_justify="left", header_style="bold")
        for row in frame.collect():
            table.add_row(*(f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row))
        self.console.print(table)


MOST_DELAYED = f"""
SELECT carrier, count(*) AS flights, avg(dep_delay) AS mean_delay, sum(cancelled) AS cancelled
FROM {flights_lake.DEPARTURES} GROUP BY carrier ORDER BY mean_delay DESC LIMIT 5
"""
HISTORY = f"""
SELECT version, operation, operationMetrics['numTargetRowsInserted'] AS inserted,
    operationMetrics['numTargetRowsUpdated'] AS updated
FROM {flights_lake.DAILY_DELAYS}_history ORDER BY version
"""
DAILY = f"""
SELECT split_part(key, '|', 1) AS origin, split_part(key, '|', 2) AS carrier, date_format(window_start, 'yyyy-MM-dd') AS day,
    flights, departed, cancelled, mean_delay, min_delay, max_delay
FROM {flights_lake.DAILY_DELAYS}
"""
TOTALS = f"""
SELECT count(*) AS flights, sum(cancelled) AS cancelled, sum(dep_delay) AS delay FROM {flights_lake.DEPARTURES}
"""


def _result(exact: bool) -> str:
    return "[green]exact[/]" if exact else "[red]different[/]"


@readable_errors
def main(
    flights: Annotated[int, typer.Option(min=1_000, help="How many flights of the year.")] = FLIGHTS,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the folder with the tables for a look around.")] = False,
) -> None:
    """Show the lake: flights into Delta tables, exactly once through a kill, queried by SQL, and compared."""
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    data = flights_data.load().first(flights)
    folder = Path(tempfile.mkdtemp(prefix="streams-demo-lake-"))
    fetch_jars()
    broker = EmbeddedBroker(folder / "broker", die_with_parent=True)
    try:
        with console.status("Starting the embedded Kafka broker"):
            broker.start()
        exact = LakeDemo({"bootstrap.servers": broker.bootstrap_servers, "log_level": "3"}, folder, console).run(data)
        if keep:
            console.print(f"Kept: the tables are in {folder / 'lake'}", highlight=False)
    finally:
        broker.stop(delete=True)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    raise typer.Exit(0 if exact else 1)


if __name__ == "__main__":
    typer.run(main)
