"""The kernel's connection tracking table: a follower, since it has no desired state of its own."""
