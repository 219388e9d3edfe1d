"""What this process does beside its rules: pages, node ports on loopback, health checks, looking for a predecessor."""
