"""The target cell: one reference inside this process to a frozen value that a server reads with each request."""
