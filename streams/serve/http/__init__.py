"""HTTP itself: servers, their connections, and the rights of callers."""
