"""Showing: what a command writes to its two streams at the end.

Here: writing to a reader that may have seen enough, the two forms of a complaint. Not here: what is written.
Invariant: a closed pipe, as of ``head``, is no error and leaves no message; with ``--output json`` standard output
holds one JSON document, whatever happens: the answer, or ``errors``.
"""

import json
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


def complain(message: str, *, as_json: bool) -> None:
    """Say why a command failed: in lines on standard error, or as one JSON object on standard output."""
    lines = message.splitlines()
    if as_json:
        show(json.dumps({"errors": lines}, indent=2))
    else:
        tell("\n".join(lines))
