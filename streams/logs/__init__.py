"""Log lines as JSON or text, and the events of an application."""
