"""What of podgate's own tables tells where the API server's Service leads, in nft's words."""

from typing import Final

OURS: Final = """
table ip podgate-services {
    map service-ips { type ipv4_addr . inet_proto . inet_service : mark; elements = { 10.96.0.1 . tcp . 443 : 3 }; }
    set service-ranges { type ipv4_addr; flags interval; elements = { 10.96.0.0/12, 10.4.0.0/24 }; }
}
table ip6 podgate-services {
    map service-ips { type ipv6_addr . inet_proto . inet_service : mark; elements = { fd00:96::1 . tcp . 443 : 1 }; }
    set service-ranges { type ipv6_addr; flags interval; elements = { fd00:96::/112 }; }
}
"""
