"""The target listeners: the sockets on which this process accepts connections."""
