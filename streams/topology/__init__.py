"""The topology: the graph of nodes, their names, the plan that divides the graph into queries, and its texts and drawings."""
