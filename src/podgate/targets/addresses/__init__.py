"""Addresses that podgate adds to a device of the node."""
