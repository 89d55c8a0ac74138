"""Run the command line: `python -m spadeful`."""

from spadeful.cli import app

app(prog_name="spadeful")
