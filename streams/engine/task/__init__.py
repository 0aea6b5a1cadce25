"""One task in one micro-batch: rows in order, through the operators, to results."""
