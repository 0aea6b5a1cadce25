"""Page views per region: a stream joined with a table, keyed anew, counted in hopping windows.

Shows: `left_join` with a table, `select_key` by grouping, `TimeWindows` that overlap, keys of windows in the output.
"""

from datetime import timedelta

from streams import Grouped, Materialized, StreamsBuilder, TimeWindows, Topology, Windowed


def region_at(key: Windowed[str], count: int) -> str:
    """`europe@0`: the region and the window's start in seconds."""
    return f"{key.key}@{key.window.start // 1000}"


def build() -> Topology:
    """Counts `page-views` (by user) per region of `user-profiles` into `views-by-region`, per five minutes, each minute."""
    builder = StreamsBuilder()
    views = builder.stream("page-views")
    profiles = builder.table("user-profiles")
    (
        views.left_join(profiles, lambda view, profile: {"page": view["page"], "region": (profile or {}).get("region")})
        .group_by(lambda view: view["region"] or "unknown", Grouped(name="by-region"))
        .windowed_by(TimeWindows.of_size_with_no_grace(timedelta(minutes=5)).advance_by(timedelta(minutes=1)))
        .count(Materialized("views-per-region"))
        .to_stream(region_at)
        .to("views-by-region")
    )
    return builder.build()
