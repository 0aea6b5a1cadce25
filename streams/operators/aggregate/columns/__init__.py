"""Built-in aggregates over whole columns of a step."""
