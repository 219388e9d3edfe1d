"""Things that are programmed, one folder each. Targets know nothing of each other, of features or of Kubernetes."""
