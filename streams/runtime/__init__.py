"""Runtime: runs the operators of a sub-topology, in a reader (`head`) and in a task (`task`); no Spark, no client."""
