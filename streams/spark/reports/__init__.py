"""What an application reports while it runs, besides the progress display for people."""
