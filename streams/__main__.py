"""`python -m streams`: the command `streams`, if its script is not on the search path."""

from streams.cli.main import app

if __name__ == "__main__":
    app()
