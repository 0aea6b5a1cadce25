"""The benchmark of look-ups, at a small size; it compares every value that it reads."""

from benchmarks.look_ups import main


def test_look_ups_are_measured(capsys):
    main(rows=[2_000], steps=4, count=500)
    figures = [line.split("│") for line in capsys.readouterr().out.splitlines() if "2,000" in line]
    assert len(figures) == 1
    assert all(float(figure) > 0 for figure in figures[0][2:4])
