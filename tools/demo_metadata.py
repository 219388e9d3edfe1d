"""The walk-through of metadata: what does a Pod learn from its node's metadata server?

Here: the steps and what must be seen at each. Not here: the lab and its cloud (examples/metadata), the proxy
(deploy/metadata).
Invariant: whether something leaked is judged by the cloud's own random words and its own record of requests.
"""

import json
import sys
from typing import Any, Final

from tools.walkthrough import Walkthrough

NODE: Final = "node/node-1"
CLOUD: Final = "host/cloud-node-1"
V1: Final = "/computeMetadata/v1"
ZONE: Final = f"{V1}/instance/zone"
KUBE_ENV: Final = f"{V1}/instance/attributes/kube-env"
LOOK: Final = (
    "apply --wait -f deploy/metadata",
    "status",
    "exec web -- curl -sH Metadata-Flavor:Google 169.254.169.254/computeMetadata/v1/instance/zone",
    "exec node/node-1 -- nft list ruleset",
    "logs host/cloud-node-1",
)
"""What to look around with once the lab is kept."""

REFUSED: Final = (
    KUBE_ENV,
    f"{V1}/instance/attributes/?recursive=true",
    f"{V1}/instance/?recursive=true",
    f"{V1}/?recursive",
    f"{V1}/instance/service-accounts/default/identity?audience=x",
)
TRICKS: Final = (
    f"{KUBE_ENV}/",
    f"{KUBE_ENV}//",
    f"{V1}/instance/attributes//kube-env",
    f"{V1}/instance/attributes/../attributes/kube-env",
    f"{V1}/instance/attributes/kube%2Denv",
    f"{V1}/instance/attributes/kube%252Denv",
    f"{V1}/instance/attributes%5Ckube-env",
    f"{V1}/instance/attributes/KUBE-ENV",
    f"{KUBE_ENV}%00",
    f"{KUBE_ENV}%0a",
    f"{KUBE_ENV};x=1",
    f"{KUBE_ENV}.",
    "/computeMetadata/v1beta1/instance/attributes/kube-env",
    "/0.1/meta-data/attributes/kube-env",
    "http://any.host/computeMetadata/v1/instance/attributes/kube-env",
    f"{V1}/instance/?alt=text;recursive=true",
    f"{V1}/instance/?recursive=true%zz",
    f"{V1}/instance/?%72ecursive=true",
    f"{V1}/instance/service-accounts/default/Identity",
    f"{V1}/instance/service-accounts/default%0a/identity",
    f"{V1}/instance/service-accounts//identity",
)
"""What got past metadata-proxy v0.1.12, and what it was tried with."""

ASK: Final = """
import json, socket, sys
answers = []
for target in json.loads(sys.argv[1]):
    try:
        with socket.create_connection((sys.argv[2], int(sys.argv[3])), timeout=20) as connection:
            head = f"GET {target} HTTP/1.1\\r\\nHost: 169.254.169.254\\r\\nMetadata-Flavor: Google\\r\\n"
            connection.sendall(f"{head}Connection: close\\r\\n\\r\\n".encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        head, _, body = answer.partition("\\r\\n\\r\\n")
        answers.append([head.split()[1], body])
    except OSError as error:
        answers.append(["refused" if isinstance(error, ConnectionRefusedError) else str(error), ""])
print(json.dumps(answers))
"""


def walk(lab: Walkthrough) -> None:
    """Walk through it."""
    lab.step(1, "a node on a cloud, without podgate: a Pod reads the node's credentials")
    lab.lab("up", "examples/metadata")
    secrets = cloud_says(lab)[0]["secrets"]
    lab.seen("the Pod reads kube-env", f"200 kube-env: {secrets['kube-env']}", ask(lab, "web", KUBE_ENV))

    lab.step(2, "podgate: the Pod reads its zone, and nothing of the node's")
    lab.lab("apply", "--wait", "-f", "deploy/metadata")
    lab.until("the redirect", lambda: ask(lab, "web", KUBE_ENV).startswith("403 "))
    lab.seen("the zone", "200 projects/123456/zones/us-central1-a", ask(lab, "web", ZONE))
    lab.seen("kube-env", "403 This metadata endpoint is concealed", ask(lab, "web", KUBE_ENV))
    no_secret(lab, "the credentials and the recursive forms", REFUSED, secrets)

    lab.step(3, "the tricks that got past metadata-proxy, and their relatives")
    no_secret(lab, f"{len(TRICKS)} tricks", TRICKS, secrets)
    lab.seen("https, port 443", "refused", ask(lab, "web", ZONE, port=443))
    lab.seen("IPv6, fd20:ce::254", "refused", ask(lab, "web", ZONE, "fd20:ce::254"))
    lab.seen("the proxy's own address, directly", "refused", ask(lab, "web", ZONE, "169.254.169.252", 988))
    lab.seen("port 8080", "403 This metadata endpoint is concealed", ask(lab, "web", ZONE, port=8080))

    lab.step(4, "the node itself reads what it always read")
    lab.seen("kube-env on the node", f"200 kube-env: {secrets['kube-env']}", ask(lab, NODE, KUBE_ENV))

    lab.step(5, "the proxy killed and gone: Pods are refused, never let through")
    lab.lab("delete", "daemonset/metadata-proxy-v0.1", "--namespace", "kube-system")
    lab.until("the proxy's end", lambda: not lab.get("pods", "--namespace", "kube-system")["items"])
    lab.seen("the zone", "refused", ask(lab, "web", ZONE))
    lab.seen("kube-env on the node", f"200 kube-env: {secrets['kube-env']}", ask(lab, NODE, KUBE_ENV))
    lab.lab("exec", NODE, "--", "podgate", "metadata", "clean")
    lab.seen("rules left on the node", "none", lab.lab("exec", NODE, "--", "nft", "list", "ruleset").strip() or "none")


def ask(lab: Walkthrough, who: str, target: str, address: str = "169.254.169.254", port: int = 80) -> str:
    """Ask for one target; give status and body, or that the connection was refused."""
    ((status, body),) = answers(lab, who, [target], address, port)
    return f"{status} {body}".strip()


def answers(
    lab: Walkthrough, who: str, targets: list[str], address: str = "169.254.169.254", port: int = 80
) -> list[tuple[str, str]]:
    """Ask for raw targets, byte for byte, over a connection each."""
    words = [sys.executable, "-c", ASK, json.dumps(targets), address, str(port)]
    found = json.loads(lab.lab("exec", who, "--", *words, quiet=True))
    return [(status, body) for status, body in found]


def no_secret(lab: Walkthrough, what: str, targets: tuple[str, ...], secrets: dict[str, str]) -> None:
    """See that none of the targets is answered, nor reaches the cloud in any form."""
    before = len(cloud_says(lab))
    got = dict(zip(targets, answers(lab, "web", list(targets)), strict=True))
    for target, (status, _) in got.items():
        print(f"    {status}  {target}")
    served = [target for target, (status, _) in got.items() if status not in ("400", "403")]
    leaked = [target for target, (_, body) in got.items() if any(word in body for word in secrets.values())]
    lab.seen(f"{what}: answered with something else than a refusal", [], served)
    lab.seen(f"{what}: answered with a secret", [], leaked)
    lab.seen(f"{what}: what the cloud saw of them", [], [row["target"] for row in cloud_says(lab)[before:]])


def cloud_says(lab: Walkthrough) -> list[dict[str, Any]]:
    """Give the cloud's record: its secrets, then a row for each request."""
    lab.until("the cloud's start", lambda: bool(lab.lab("logs", CLOUD, quiet=True).strip()))
    return [json.loads(line) for line in lab.lab("logs", CLOUD, quiet=True).splitlines()]
