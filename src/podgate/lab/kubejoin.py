"""Which cluster a lab has joined: a note in its state directory.

Here: the note, written by ``lab up --kubeconfig`` and read by everything else. Not here: the way there
(kubeaccess.py), what is done there.
Invariant: a lab with the note keeps no objects of its own; one without it knows no API server.
"""

from typing import Final

import msgspec

from podgate.lab.places import Places
from podgate.model.frozen import Frozen

_NOTE: Final = "cluster.json"


class Join(Frozen, frozen=True):
    """A lab's way to its cluster.

    Attributes:
        kubeconfig: the absolute path of the file.
        context: which context in it; empty for the current one.
        address: the API server's IP address, found out by the starter: the lab's own network has no name server.
    """

    kubeconfig: str
    context: str
    address: str


def write_note(places: Places, joined: Join) -> None:
    """Note which cluster a lab that is about to start joins."""
    (places.state / _NOTE).write_bytes(msgspec.json.encode(joined))


def read_note(places: Places) -> Join | None:
    """Give the cluster that a lab has joined; None when it keeps its objects itself."""
    try:
        return msgspec.json.decode((places.state / _NOTE).read_bytes(), type=Join)
    except FileNotFoundError:
        return None
