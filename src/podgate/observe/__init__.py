"""What podgate says about itself: log lines, metrics and the pages that serve them. Knows nothing of Kubernetes."""
