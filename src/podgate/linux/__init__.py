"""Linux as podgate uses it: netlink, files, processes, namespaces. Knows nothing of Kubernetes."""
