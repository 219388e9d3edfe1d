"""bootstrap: whether a start can reach the API server before it has written the rules that lead there.

Here: which addresses are a Service's, and what is said of one that does not answer. Not here: rules in the kernel
(standing_rules.py), logging in (kubeapi/).
Invariant: while there are rules for the address a start is never refused: the API may be away for a while. Without any
an address that is known to be a Service's is refused unless it answers, and of another one it is said that it may be.
"""

import re
import socket
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from podgate.features.services.addresses import packed, within
from podgate.features.services.server.standing_rules import has_rules, remembered_ranges

_ANSWER_SECONDS: Final = 2.0
_SERVICE_NAME: Final = re.compile(r"kubernetes(\.default(\.svc(\..+)?)?)?")
"""The names of the API server's Service in the cluster's DNS."""

_OWN: Final = "KUBERNETES_SERVICE_HOST"
_SERVICES: Final = "_SERVICE_HOST"
"""How variables of a Pod end that hold the cluster IP of a Service of its namespace, or of the API server's."""

_IN_KUBECONFIG: Final = "write the API server's own address into the kubeconfig"
_GIVE_ONE: Final = "give --kubeconfig with the API server's own address"


def obstacle(environ: Mapping[str, str], say: Callable[[str], None], *, has_source: bool, server: str = "") -> str:
    """Say why this process cannot start on a node without rules; empty when it can.

    A Pod's own account leads to the API server by the address of the Service ``kubernetes``, which nobody leads
    anywhere before there are rules for it: kube-proxy's, or ours of an earlier run. A kubeconfig may do so, too. What
    is a Service's address is known by a Pod's environment and by the ranges in our own tables; nothing else tells it
    before the API does.

    Args:
        environ: the environment.
        say: told what may be wrong, where it is not known.
        has_source: whether an option other than a kubeconfig says where objects come from.
        server: the kubeconfig's server, as ``https://10.96.0.1:443``; empty without a kubeconfig.
    """
    own = environ.get(_OWN, "")
    if has_source or not (server or (own and not environ.get("PODGATE_SOURCE"))):
        return ""
    advice = _IN_KUBECONFIG if server else _GIVE_ONE
    named = urlsplit(server or f"https://{_with_port(own, environ.get('KUBERNETES_SERVICE_PORT', ''))}")
    try:
        host, port = named.hostname or "", named.port or 443
    except ValueError:
        return ""  # whoever logs in says what is wrong with it
    by_name = _SERVICE_NAME.fullmatch(host) is not None
    address = packed(own if by_name else host)
    if (address is None and not by_name) or _answers(host, port):
        return ""
    if address is not None and has_rules(address, port):
        return ""
    where = _with_port(host, str(port))
    # A machine may be called kubernetes; outside of a Pod only a longer name is sure to be the cluster's.
    is_sure = by_name and (own or ".svc" in host)
    if is_sure or _is_a_services(address, environ) or within(address or b"", remembered_ranges()):
        return (
            f"the API server does not answer at {where}, a Service's address, and nobody leads there before "
            f"there are rules: {advice}"
        )
    say(
        f"the API server does not answer at {where}, and there are no rules for it: if that is a Service's address it "
        f"never will, so {advice}"
    )
    return ""


def _with_port(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_a_services(address: bytes | None, environ: Mapping[str, str]) -> bool:
    return any(name.endswith(_SERVICES) and packed(value) == address for name, value in environ.items())


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_ANSWER_SECONDS):
            return True
    except OSError:
        return False
