"""Reasons in manifests: the comment above a right that an agent asks for.

Here: whether there is one. Not here: which rights an agent has; each feature's test says so.
Invariant: a right stands in its manifest once.
"""

from pathlib import Path


def has_reason(manifest: Path, right: str) -> bool:
    """Say whether a comment stands in the four lines above a right, given as its line without indentation."""
    lines = manifest.read_text().splitlines()
    (at,) = [at for at, line in enumerate(lines) if line.strip().removeprefix("- ") == right]
    return any(line.strip().startswith("# ") for line in lines[max(0, at - 4) : at])
