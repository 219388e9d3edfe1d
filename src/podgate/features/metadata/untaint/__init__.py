"""The start-up taint: frees each node of it once its metadata proxy is ready."""
