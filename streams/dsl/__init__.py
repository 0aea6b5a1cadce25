"""The DSL: what a program is written in. It only builds nodes; nothing runs here."""
