"""Peers: programs that the lab runs as somebody's partner: the echo server. Each is a process of its own."""
