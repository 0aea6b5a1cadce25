"""Programs of plain PySpark: Spark's native operators, `applyInPandasWithState` by key, and `transformWithStateInPandas`."""
