"""The headers in which a record that has failed says why, and where it came from (KIP-1034)."""

ERROR_HEADERS = "__streams.errors."
"""What the names of these headers begin with."""
STAGE = ERROR_HEADERS + "stage"
CUT = ERROR_HEADERS + "cut"
"""What was cut from a dead letter that Kafka would have refused."""
ORIGIN = tuple(ERROR_HEADERS + name for name in ("topic", "partition", "offset", "timestamp"))
"""Where the record came from first."""
