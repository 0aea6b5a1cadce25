"""The DSL in which programs are written. The DSL only adds nodes to a topology; nothing runs here."""
