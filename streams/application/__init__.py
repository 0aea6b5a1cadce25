"""An application: a topology with its settings, its tasks and its internal topics on a real cluster. Knows nothing of Spark."""
