"""The result of runs, and its file: figures with machine, versions and commit."""

from __future__ import annotations

import json
import math
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.harness.peers import OURS, ROOT
from streams.broker import KAFKA_VERSION

RESULTS = ROOT / "benchmarks" / "results"
LIVE = "live"
"""The label of results with `execution=live` from before live execution was the default."""
SLOW = "slow"
"""What labels end with of a paced load with fewer records a second than the size's."""
_LIBRARIES = ("pyspark", "confluent-kafka", "rocksdict", "numba", "numpy", "pyarrow", "orjson")


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        outcome: `verified`, `wrong` (the verifier has not accepted the output), `failed` or `not supported`.
        records: Input records in the measured time.
        seconds: The measured time.
        records_per_second: The rate.
        cpu_us_per_record: CPU of all processes of the peer.
        cpu_us_by_process: The same by kind of process.
        first_result_s: From the start to the first committed result.
        steady: Whether the measured time is a steady state.
        output_records: Records in the output topics.
        figures: Memory (`TreeUsage.memory_mb`) and its growth (`TreeUsage.growth`), the CPU of the broker for a record
            (`broker_cpu_us`), bytes and records of internal topics, the machine's speed (`probe_us`), latencies, ...
        why: Differences or the error, in words.
    """

    outcome: str
    records: int = 0
    seconds: float = 0.0
    records_per_second: int = 0
    cpu_us_per_record: float = 0.0
    cpu_us_by_process: Mapping[str, float] = field(default_factory=dict)
    first_result_s: float | None = None
    steady: bool = True
    output_records: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)
    why: Sequence[str] = ()

    @property
    def counts(self) -> bool:
        """Whether the figures count."""
        return self.outcome == "verified"


@dataclass(frozen=True)
class Result:
    """All runs of one workload, size and peer."""

    workload: str
    size: str
    peer: str
    title: str
    guarantee: str
    settings: Mapping[str, str]
    parameters: Mapping[str, Any]
    runs: Sequence[Run]
    label: str = ""
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    at: str = ""

    @property
    def name(self) -> str:
        """The name of its file."""
        return "-".join(filter(None, [self.workload, self.size, self.peer, self.label]))

    @property
    def in_micro_batches(self) -> bool:
        """Whether it is one of ours in micro-batches, as are those that name no execution: that was the default then."""
        return self.peer == OURS and self.settings.get("execution", "micro-batch") == "micro-batch"

    @property
    def outcome(self) -> str:
        """The worst of its runs' outcomes."""
        order = ["not supported", "failed", "wrong", "verified"]
        return min((run.outcome for run in self.runs), key=order.index)

    def spread(self, figure: str) -> tuple[float, float, float] | None:
        """Median, least and largest value of a figure over the runs that count; None if there is none."""
        found = [value for run in self.runs if run.counts for value in [_value(run, figure)] if value is not None]
        return (median(found), min(found), max(found)) if found else None


def three_digits(value: float) -> str:
    """A figure as pages show it: runs differ by much more than a hundredth, so further digits say nothing."""
    if value == 0:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(value)))
    text = f"{round(value, decimals):,.{max(0, decimals)}f}"
    return text.partition(".")[0] if value == int(value) else text


def _value(run: Run, figure: str) -> float | None:
    value = getattr(run, figure, None)
    return run.figures.get(figure) if value is None else float(value)


def cell(spread: tuple[float, float, float] | None) -> str:
    """Median, and in brackets the range if there is one."""
    if spread is None:
        return "-"
    middle, least, most = (three_digits(value) for value in spread)
    return middle if least == most else f"{middle} ({least} to {most})"


def described(**fields: Any) -> Result:
    """A result with what describes this machine and this program."""
    memory = psutil.virtual_memory().total / 2**30
    return Result(
        **fields,
        machine=f"{psutil.cpu_count()} cores ({_processor()}), {memory:.0f} GiB, {platform.platform()}",
        versions=_versions(),
        commit=_commit(),
        at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def save(result: Result, folder: Path = RESULTS) -> Path:
    """Writes the result's file, which replaces an earlier one of the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.name}.json"
    path.write_text(json.dumps(asdict(result), indent=2) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> Result:
    """The result in a file."""
    values = json.loads(path.read_text(encoding="utf-8"))
    values["runs"] = [Run(**run) for run in values["runs"]]
    return Result(**values)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "kafka": KAFKA_VERSION}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """The commit that is measured, with `+changes` if files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git(
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            "streams",
            "state",
            "benchmarks",
            ":!benchmarks/results",
        )
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
