"""podgate: every proxy that a Kubernetes Pod meets, in one package and one command.

Here: nothing but the version. Not here: imports of any part, so that an agent loads only what it runs.
"""

__version__ = "0.1.0"
