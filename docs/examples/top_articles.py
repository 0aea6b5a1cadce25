"""The top articles of each industry per hour, in the classic way: count, group the counts anew, keep the best.

Shows: a windowed count, regrouping a table by its window, an adder and a subtractor. `top_articles_built_in.py` does the same
with `top`.
"""

from datetime import timedelta
from typing import Any

from streams import (
    Grouped,
    JsonSerde,
    Materialized,
    StreamsBuilder,
    StringSerde,
    TimeWindowedSerde,
    TimeWindows,
    Topology,
    Windowed,
)

N = 2
HOUR = timedelta(hours=1)
Entry = list[Any]
Ranking = list[Entry]


def regroup(key: Windowed[str], count: int) -> tuple[Windowed[str], Entry]:
    """From `industry|article` in a window to the industry in that window."""
    industry, article = key.key.split("|")
    return Windowed(industry, key.window), [article, count]


def add(entry: Entry, ranking: Ranking) -> Ranking:
    """The ranking with one more article."""
    return sorted([*ranking, entry], key=lambda one: (-one[1], one[0]))


def remove(entry: Entry, ranking: Ranking) -> Ranking:
    """The ranking without an article whose count has changed."""
    return [one for one in ranking if one[0] != entry[0]]


def build() -> Topology:
    """Ranks the articles of `article-views` into `top-articles`."""
    builder = StreamsBuilder()
    (
        builder.stream("article-views")
        .group_by(lambda view: f"{view['industry']}|{view['article']}", Grouped(name="by-article"))
        .windowed_by(TimeWindows.of_size_with_no_grace(HOUR))
        .count(Materialized("article-counts"))
        .group_by(regroup, Grouped(TimeWindowedSerde(StringSerde(), HOUR), JsonSerde(), name="by-industry"))
        .aggregate(list, add, remove, Materialized("rankings"))
        .to_stream(lambda key, ranking: key.key)
        .map_values(lambda ranking: ranking[:N])
        .to("top-articles")
    )
    return builder.build()
