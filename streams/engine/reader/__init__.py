"""From the records of a topic-partition to rows for tasks: timestamps, stateless operators, routing."""
