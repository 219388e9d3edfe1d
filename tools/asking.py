"""Asking: the parser of a tool's command line.

Here: a mistake ends the tool in two lines, with what was probably meant, as podgate itself says it. Not here: any tool.
Invariant: exit 2.
"""

import argparse
from typing import NoReturn

from podgate.commandline.usage import guessed


class Parser(argparse.ArgumentParser):
    """Says what was wrong in one line, and where help is."""

    def error(self, message: str) -> NoReturn:
        """End the tool."""
        self.exit(2, f"{self.prog}: {guessed(message)}\n{self.prog}: --help says more\n")
