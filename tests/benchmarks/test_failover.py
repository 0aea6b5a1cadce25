"""The benchmark `failover` reads the whole changelog in the first way, and the tail alone in the others."""

from benchmarks.failover import failovers


def test_only_the_changelog_way_reads_the_whole_changelog():
    found = {one.way: one.records for one in failovers(5_000, 100)}
    assert (found["changelog"], found["snapshot"], found["replica"]) == (5_000, 100, 100)
