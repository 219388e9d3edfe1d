"""The Kubernetes API as a source of objects: list, watch, and go on where it broke off."""
