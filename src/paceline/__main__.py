"""Runs the command line when it is started as `python -m paceline`."""

from paceline.cli import main

main()
