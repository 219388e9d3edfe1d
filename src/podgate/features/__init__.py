"""Features: what podgate does for a Pod, one folder each.

Here: nothing but the folders. Not here: what two features share, which moves down to model or to a target.
Invariant: no feature imports another.
"""
