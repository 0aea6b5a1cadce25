"""Built-in aggregates over the columns of a whole step."""
