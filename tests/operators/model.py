"""What the operators mean, in plain Python over lists and dicts; shares no code with them."""

import bisect


def windowed_sums(records, size, advance, grace):
    """Tumbling or hopping sums: {(key, start): [values in order], max timestamp}, and how many were late.

    records: (key, value, timestamp) in processing order; stream time never forgets.
    """
    time, late, windows = -1, 0, {}
    for key, value, timestamp in records:
        if key is None:
            continue
        time = max(time, timestamp)
        start = timestamp - timestamp % advance
        starts = []
        while start >= 0 and start + size > timestamp:
            starts.append(start)
            start -= advance
        for begin in reversed(starts):
            if begin + size + grace <= time:
                late += 1
                continue
            values, newest = windows.get((key, begin), ((), -1))
            windows[(key, begin)] = ((*values, value), max(newest, timestamp))
    return windows, late


def inner_join(records, before, after, grace):
    """Strict inner join: the multiset of (key, left, right, time), and how many records were late.

    records: (side, key, value, timestamp) in processing order.
    """
    time, late, pairs, kept = -1, 0, [], []
    for side, key, value, timestamp in records:
        time = max(time, timestamp)
        if key is None or value is None:
            continue

        def is_open(of_side, at, now=time):
            wait = max(0, after if of_side == "left" else before)
            return at + wait + grace >= now

        if not is_open(side, timestamp):
            late += 1
            continue
        for other_side, other_key, other, at in kept:
            if other_side == side or other_key != key or not is_open(other_side, at):
                continue
            left, right = (timestamp, at) if side == "left" else (at, timestamp)
            if left - before <= right <= left + after:
                values = (value, other) if side == "left" else (other, value)
                pairs.append((key, *values, max(timestamp, at)))
        bisect.insort(kept, (side, key, value, timestamp))
    return sorted(pairs), late


def table_join(records, left):
    """Stream-table join: list of (key, value, table value, time). records: (side, key, value, timestamp)."""
    table, rows = {}, []
    for side, key, value, timestamp in records:
        if side == "table":
            if key is not None:
                table[key] = value
            continue
        found = table.get(key) if key is not None else None
        if value is None or (not left and found is None):
            continue
        rows.append((key, value, found, timestamp))
    return rows
