"""The values that all other packages share. This package imports only errors, wording and byte formats of the project."""
