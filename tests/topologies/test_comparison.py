from topologies.comparison import compare


def test_equal_tables_have_no_differences():
    rows = {"a": {"n": 1, "mean": 0.1 + 0.2}, "b": {"n": 2, "mean": None}}
    assert compare(rows, {"b": {"mean": None, "n": 2}, "a": {"mean": 0.3, "n": 1.0}}) == []


def test_each_difference_is_named():
    expected = {"a": {"n": 1}, "b": {"n": 2, "mean": 1.0}, "c": 5}
    found = {"b": {"n": 3, "mean": 1.0 + 1e-6}, "c": 5, "d": {"n": 4}}
    assert compare(expected, found) == [
        "a: missing, expected {'n': 1}",
        "d: not expected, found {'n': 4}",
        "b n: expected 2, found 3",
        "b mean: expected 1.0, found 1.000001",
    ]


def test_a_missing_field_is_a_difference():
    assert compare({"a": {"n": 1}}, {"a": {"n": 1, "extra": 2}}) == ["a extra: expected None, found 2"]


def test_whole_numbers_are_compared_exactly():
    assert compare({"a": 10**15}, {"a": 10**15 + 1}) == [f"a: expected {10**15}, found {10**15 + 1}"]
