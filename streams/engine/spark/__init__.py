"""What Spark's Python workers run."""
