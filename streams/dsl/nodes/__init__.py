"""Adds the nodes and stores of the DSL's methods to the graph: one module for each kind of operator."""
