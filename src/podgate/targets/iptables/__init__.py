"""The iptables target: what is ours in one table of one family, by iptables-nft or iptables-legacy."""
