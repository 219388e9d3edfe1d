"""services: Service addresses to endpoints, in the kernel; replaces kube-proxy.

Here: the feature. Not here: how a target is programmed.
Invariant: as every feature, it imports no other one.
"""
