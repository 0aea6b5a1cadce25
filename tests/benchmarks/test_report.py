"""The report: what a page says about results, and that it needs nothing but their files."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import report, result, sizing
from benchmarks.harness.result import Result, Run


def a_run(rate: int, outcome: str = "verified") -> Run:
    figures = {"peak_pss_mb": 900, "internal_bytes": 1_000, "probe_us": 310.0}
    return Run(outcome, 1_000, 1.0, rate, 2.5, {"JVM": 1.0, "workers": 1.5}, 4.0, figures=figures, why=[])


def a_result(peer: str, *runs: Run, label: str = "") -> Result:
    parameters = {"records": 8_000_000}
    return Result("windows", "small", peer, peer.title(), "exactly-once", {}, parameters, runs, label)


def page(folder: Path, *results: Result) -> str:
    for one in results:
        result.save(one, folder / "results")
    report.write(folder / "results", folder / "performance.md")
    return (folder / "performance.md").read_text()


def test_a_row_has_the_median_and_the_range_of_the_runs_that_count(tmp_path: Path) -> None:
    text = page(tmp_path, a_result("streams", a_run(100_000), a_run(300_000), a_run(200_000), a_run(9, "wrong")))
    row = "| Streams | exactly-once | 200,000 (100,000 to 300,000) | 2.50 | 900 | 4 | 1,000 | 310 | - | 3 of 4 |"
    assert row in text.splitlines()


def test_the_engine_comes_first_and_a_peer_without_a_result_has_its_reason(tmp_path: Path) -> None:
    refused = Run("not supported", why=["it has no windows"])
    text = page(tmp_path, a_result("bytewax", refused), a_result("streams", a_run(100_000)))
    rows = [line for line in text.splitlines() if "exactly-once" in line]
    assert rows[0].startswith("| Streams |")
    assert rows[1].startswith("| Bytewax | exactly-once | not supported: it has no windows |")


def test_results_with_a_label_are_for_comparisons_only(tmp_path: Path) -> None:
    text = page(tmp_path, a_result("streams", a_run(100_000)), a_result("streams", a_run(7), label="before"))
    assert "100,000" in text
    assert "before" not in text


def test_a_series_has_a_table_with_a_row_for_each_value(tmp_path: Path) -> None:
    results = [a_result("streams", a_run(rate), label=f"growth-tasks-{tasks}") for tasks, rate in ((16, 90), (2, 80))]
    lines = page(tmp_path, *results).splitlines()
    rows = [line for line in lines[lines.index("### Tasks (`counts`)") :] if line.startswith("| ")]
    assert [row.split(" | ")[:4] for row in rows[1:]] == [
        ["| 2", "Streams", "8,000,000", "80"],
        ["| 16", "Streams", "8,000,000", "90"],
    ]


def test_the_cores_for_a_rate_are_computed_from_the_cpu_of_a_record(tmp_path: Path) -> None:
    # 2.5 µs at 100 000 records/s are a quarter of a core, and 1 000 bytes of 8 000 000 records are little.
    text = page(tmp_path, a_result("streams", a_run(100_000)), a_result("kafka-streams", a_run(100_000)))
    assert [line for line in text.splitlines() if line.startswith("| `windows`")] == [
        "| `windows` | 2.5 | 1 | 5 | 0.0 |"
    ]
    assert sizing.cores(1_000_000, 6.01) == 11


def test_sizes_are_computed_from_steady_rates_only(tmp_path: Path) -> None:
    paced = replace(a_result("streams", a_run(20_000)), workload="latency")
    text = page(
        tmp_path, paced, a_result("streams", a_run(100_000)), replace(a_result("streams", a_run(9)), size="full")
    )
    assert [line.split(" | ")[0] for line in text[text.index("## Sizing") :].splitlines() if "| `" in line] == [
        "| `windows`"
    ]


def test_series_have_one_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    text = page(tmp_path, *(a_result("streams", a_run(9), label=f"growth-tasks-{tasks}") for tasks in (2, 16)))
    assert text.index("## Growth") < text.index("![growth](performance/growth.svg)")
    assert (tmp_path / "performance" / "growth.svg").exists()


def test_a_file_reads_back_as_the_result_that_was_saved(tmp_path: Path) -> None:
    saved = result.described(
        workload="windows",
        size="small",
        peer="streams",
        title="Streams",
        guarantee="exactly-once",
        settings={},
        parameters={"records": 10},
        runs=[a_run(5)],
    )
    assert result.read(result.save(saved, tmp_path)) == saved
    assert saved.versions["kafka"]
