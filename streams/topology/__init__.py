"""What is to run: the graph of nodes, their names, the plan that cuts it into queries, and its texts and drawings."""
