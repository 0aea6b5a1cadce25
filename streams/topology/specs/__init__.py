"""The specs of all nodes, one frozen class each: kind, parameters in names and hashes, and how to make the operator."""
