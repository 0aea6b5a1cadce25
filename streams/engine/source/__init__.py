"""Which records a micro-batch reads: exact offset ranges, planned on the driver. Knows Kafka's offsets, not Spark."""
