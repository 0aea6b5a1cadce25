"""The page of an application in a browser, and the same figures as JSON."""
