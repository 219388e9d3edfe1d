"""azure: Azure's instance metadata service, and WireServer, which is at another address.

Here: instance data, identity tokens, the goal state. Not here: sockets.
Invariant: as at Azure, ``Metadata: true`` is asked for, X-Forwarded-For is refused, and paths count in any case.
"""

import json
from typing import Any, Final

from podgate.lab.peers.clouds.cloud import FORWARDED_FOR, Asked, Cloud, Hold, Reply

WIRE_SERVER: Final = "168.63.129.16"
_JSON: Final = (("Content-Type", "application/json; charset=utf-8"), ("Server", "IMDS/150.870.65.1325"))


class Azure(Cloud):
    """One machine's view."""

    name = "azure"

    def __init__(self) -> None:
        super().__init__(("identity", "user-data", "custom-data", "admin-password", "goal-state", "vm-settings"))
        words = self.secrets
        self._instance: dict[str, Any] = {
            "compute": {
                "location": "westeurope",
                "name": "node-1",
                "vmId": "0000",
                "subscriptionId": "1111",
                "userData": words["user-data"],
                "customData": words["custom-data"],
                "osProfile": {"adminUsername": "admin", "adminPassword": words["admin-password"]},
            },
            "network": {"interface": [{"ipv4": {"ipAddress": [{"privateIpAddress": "10.0.0.4"}]}}]},
        }

    def answer(self, asked: Asked, *, held: bool = False) -> Reply | Hold:
        """Answer a request; the Host tells WireServer from the metadata service."""
        del held
        host = asked.header("host") or ""
        if host.startswith(WIRE_SERVER):
            secret = self.secrets["vm-settings" if host.endswith(":32526") else "goal-state"]
            return Reply(200, f"<GoalState>{secret}</GoalState>".encode(), (("Content-Type", "text/xml"),))
        if asked.header(FORWARDED_FOR) is not None or (asked.header("metadata") or "").lower() != "true":
            return Reply(400, b'{"error": "Bad request. Required metadata header not specified"}', _JSON)
        if "api-version" not in asked.query and asked.path.lower() != "/metadata/versions":
            return Reply(400, b'{"error": "Bad request. api-version was not specified in the request"}', _JSON)
        if asked.method not in ("GET", "HEAD"):
            return Reply(405, headers=_JSON)
        return self._read([word.lower() for word in asked.path.split("/") if word])

    def _read(self, words: list[str]) -> Reply:
        match words:
            case ["metadata", "identity", "oauth2", "token"]:
                found: Any = {"access_token": self.secrets["identity"], "expires_in": "86399", "token_type": "Bearer"}
            case ["metadata", "instance", *below]:
                found = self._instance
                for word in below:
                    names = {name.lower(): name for name in found} if isinstance(found, dict) else {}
                    if word not in names:
                        return Reply(404, b'{"error": "Not found"}', _JSON)
                    found = found[names[word]]
            case ["metadata", "versions"]:
                found = {"apiVersions": ["2021-02-01"]}
            case ["metadata", "scheduledevents"]:
                found = {"DocumentIncarnation": 1, "Events": []}
            case _:
                return Reply(404, b'{"error": "Not found"}', _JSON)
        return Reply(200, (found if isinstance(found, str) else json.dumps(found)).encode(), _JSON)
