"""``podgate doctor``: is a cluster as podgate needs it, and do its agents work? A verdict per line."""
