"""From the records of a topic-partition to rows for tasks: timestamps, the stateless operators, routing."""
