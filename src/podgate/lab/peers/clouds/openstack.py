"""openstack: nova's metadata service.

Here: its JSON documents, and the part that looks like Amazon's. Not here: sockets.
Invariant: the administrator's password stands in meta_data.json beside what Pods may know.
"""

import json
from typing import Final

from podgate.lab.peers.clouds.cloud import Asked, Cloud, Hold, Reply

_VERSIONS: Final = ("latest", "2018-08-27")


class OpenStack(Cloud):
    """One instance's view."""

    name = "openstack"

    def __init__(self) -> None:
        super().__init__(("admin-password", "user-data", "vendor-data", "password"))
        words = self.secrets
        document = {
            "uuid": "4711",
            "hostname": "node-1.novalocal",
            "availability_zone": "nova",
            "admin_pass": words["admin-password"],
            "meta": {"nested": {"Admin_Pass": words["admin-password"]}},
        }
        files = {
            "meta_data.json": json.dumps(document),
            "network_data.json": json.dumps({"links": []}),
            "user_data": words["user-data"],
            "vendor_data.json": json.dumps({"key": words["vendor-data"]}),
            "vendor_data2.json": json.dumps({"key": words["vendor-data"]}),
            "password": words["password"],
        }
        self._pages = {"/": "latest\n", "/openstack": "".join(f"{version}\n" for version in _VERSIONS)}
        for version in _VERSIONS:
            self._pages[f"/openstack/{version}"] = "".join(f"{name}\n" for name in files)
            self._pages |= {f"/openstack/{version}/{name}": text for name, text in files.items()}
        self._pages["/latest/meta-data/instance-id"] = "i-0001"
        self._pages["/latest/user-data"] = words["user-data"]

    def answer(self, asked: Asked, *, held: bool = False) -> Reply | Hold:
        """Answer a request."""
        del held
        page = self._pages.get(asked.path.rstrip("/") or "/")
        if page is None:
            return Reply(404, b"<h1>404 Not Found</h1>")
        kind = "application/json" if page.startswith("{") else "text/plain; charset=UTF-8"
        return Reply(200, page.encode(), (("Content-Type", kind),))
