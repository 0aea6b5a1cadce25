"""Lake sinks on Spark: a query for each, its data source, and the Delta table that it writes."""
