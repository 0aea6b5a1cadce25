"""What the methods of the DSL add to the graph: one module for each kind of operator."""
