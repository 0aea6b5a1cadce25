"""What each sort of node is, one frozen class each: its kind, its parameters in names and hashes, and how its operator is made."""
