"""What this process does beside its rules: pages, health check node ports, node ports on loopback, looking for a predecessor."""
