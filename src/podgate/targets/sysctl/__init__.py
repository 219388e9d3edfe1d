"""Parameters of the kernel, as /proc/sys has them for this network namespace."""
