"""What this process does beside its rules: pages, health check node ports, looking for a predecessor."""
