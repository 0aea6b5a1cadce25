"""The DSL in which programs are written. It only adds nodes to a topology; nothing runs here."""
