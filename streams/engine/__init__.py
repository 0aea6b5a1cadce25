"""What runs in a worker: sources, reading, the graph of a task, its steps, and the slots of live execution."""
