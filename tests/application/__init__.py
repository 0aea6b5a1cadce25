"""What an application makes sure of before it starts, and what a reset deletes."""
