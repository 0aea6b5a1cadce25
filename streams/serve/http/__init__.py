"""HTTP by itself: servers and their connections, and who may ask."""
