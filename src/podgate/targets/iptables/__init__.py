"""The iptables target: what is ours in the table nat of one family, by iptables-nft or iptables-legacy."""
