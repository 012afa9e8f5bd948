"""`python -m stages COMMAND`: list artifacts, show a lineage, verify hashes, explain why two keys differ, which
documents a checkpoint has seen or a corpus has dropped, promote a baseline, collect garbage."""

import argparse

from stages.cli import run_and_exit
from stages.commands import add_commands

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m stages", description=__doc__)
    add_commands(parser)
    arguments = parser.parse_args()
    run_and_exit(lambda: arguments.command(arguments))
