"""One nftables table of one family as a target: state, render and diff are pure, apply does the I/O, fake executes."""
