"""The ground floor: the values that every other package speaks of. It imports no other package of ours but the errors."""
