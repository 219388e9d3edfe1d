"""Showing: what a command writes to its two streams at the end.

Here: writing to a reader that may have seen enough. Not here: what is written.
Invariant: a closed pipe, as of ``head``, is no error and leaves no message.
"""

import os
import sys


def show(text: str) -> None:
    """Write a text and a line end to standard output."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What is still buffered would fail again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(text: str) -> None:
    """Write a line for people, beside the answer, to standard error at once."""
    print(text, file=sys.stderr, flush=True)
