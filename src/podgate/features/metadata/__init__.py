"""metadata: keeps the node's credentials on the cloud's metadata server out of Pods' reach. Replaces metadata-proxy.

Here: the pure core (head, target, policies, filter, settings, intent, compile, explain), the server, and the writers.
Not here: files, the kernel and the clock, which sources, targets and the server hold.
Invariant: what goes upstream is rebuilt from what was checked, so the upstream sees no byte that the policy did not.
"""
