"""The pictures of docs/learn are those of the tables of their pages."""

from tests.docs.pictures import FOLDER, JOINS, WINDOWS, pictures


def test_pictures_show_what_the_tables_show() -> None:
    drawn = pictures()
    assert drawn.keys() == {f"{name}.svg" for name in (*WINDOWS.values(), *JOINS.values())}
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")} == drawn
