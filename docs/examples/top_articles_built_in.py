"""The top articles per hour with `top`: three lines in place of an adder, a subtractor and a sorted list.

Shows: `KGroupedTable.top` over a windowed count.
"""

from datetime import timedelta

from streams import Grouped, JsonSerde, StreamsBuilder, StringSerde, TimeWindowedSerde, TimeWindows, Topology, Windowed

HOUR = timedelta(hours=1)


def by_industry(key: Windowed[str], count: int) -> tuple[Windowed[str], dict[str, object]]:
    """From `industry|article` in a window to the industry in that window."""
    industry, article = key.key.split("|")
    return Windowed(industry, key.window), {"article": article, "views": count}


def build() -> Topology:
    """Ranks the articles of `article-views` into `top-articles`."""
    builder = StreamsBuilder()
    (
        builder.stream("article-views")
        .group_by(lambda view: f"{view['industry']}|{view['article']}", Grouped(name="by-article"))
        .windowed_by(TimeWindows.of_size_with_no_grace(HOUR))
        .count("article-counts")
        .group_by(by_industry, Grouped(TimeWindowedSerde(StringSerde(), HOUR), JsonSerde(), name="by-industry"))
        .top(2, by=lambda entry: entry["views"], named="top-two")
        .to_stream(lambda key, ranking: key.key)
        .to("top-articles")
    )
    return builder.build()
