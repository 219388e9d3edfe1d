"""What Kubernetes says, as frozen values, and its shared meaning. Pure: no I/O, clock, randomness or logging."""
