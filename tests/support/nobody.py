"""Nobody: code run by somebody without privileges.

Here: one call in a child of this process. Not here: programs, which setpriv starts.
Invariant: the child ends with its call, whatever it raises; what nobody expects is an empty text.
"""

import os
from collections.abc import Callable
from typing import Final

NOBODY: Final = 65534


def as_nobody(function: Callable[[], object]) -> str:
    """Call a function in a child that has no privileges; give what it gives as text, or what it was refused.

    The interpreter need not be anybody's to start: the child is a copy of this process.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            said = str(function())
        except (OSError, ImportError) as error:
            said = repr(error)
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said
