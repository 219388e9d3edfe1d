"""masquerade: decides which Pod traffic leaves with the node's address. Replaces ip-masq-agent and Azure's v2 of it.

Here: the pure core (settings, config, prefixes, intent, compile, explain, check) and the writers, one per target.
Not here: files, the kernel and the clock, which sources and targets hold.
Invariant: nothing that is wrong in a configuration makes fewer or weaker rules than the last good one had.
"""
