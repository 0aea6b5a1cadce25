"""The DSL for writing programs. It only adds nodes to a topology; nothing runs here."""
