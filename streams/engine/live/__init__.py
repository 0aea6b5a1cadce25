"""Live execution: tasks that stay in a worker, read their own partitions and commit many times a second; knows no Spark."""
