"""The values that all other packages share. This package imports nothing of the project but the errors."""
