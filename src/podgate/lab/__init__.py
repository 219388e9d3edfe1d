"""The lab: a cluster in a box on one Linux machine, from ordinary manifests."""
