"""aws: Amazon's instance metadata service, versions 1 and 2.

Here: session tokens with their hop limit, roles, user data. Not here: sockets.
Invariant: as at Amazon, X-Forwarded-For gets 403, and with version 2 required nothing is read without a token.
"""

import json
import secrets
from typing import Final

from podgate.lab.peers.clouds.cloud import FORWARDED_FOR, Asked, Cloud, Hold, Reply

TOKEN_PATH: Final = "/latest/api/token"  # noqa: S105 - where tokens come from
ROLE: Final = "node-role"
_TOKEN: Final = "x-aws-ec2-metadata-token"  # noqa: S105 - a header's name
_TTL: Final = "x-aws-ec2-metadata-token-ttl-seconds"


class Aws(Cloud):
    """One instance's view.

    Args:
        required: whether version 1, without a token, is off.
        hop_limit: how far the answer with a token travels.
    """

    name = "aws"

    def __init__(self, *, required: bool = True, hop_limit: int = 1) -> None:
        super().__init__(("role-credentials", "identity-credentials", "user-data"))
        self._required = required
        self._hops = hop_limit
        self._tokens: set[str] = set()
        words = self.secrets
        usual = {"Code": "Success", "AccessKeyId": "AKIA", "Token": "session", "Expiration": "2099-01-01T00:00:00Z"}
        credentials = {**usual, "SecretAccessKey": words["role-credentials"]}
        own = {**credentials, "SecretAccessKey": words["identity-credentials"]}
        self._pages = {
            "/": "latest\n2021-03-23",
            "/latest/": "dynamic\nmeta-data\nuser-data",
            "/latest/meta-data/": "ami-id\nhostname\niam/\nidentity-credentials/\ninstance-id\nplacement/",
            "/latest/meta-data/instance-id": "i-0123456789",
            "/latest/meta-data/hostname": "ip-10-0-0-1.ec2.internal",
            "/latest/meta-data/placement/availability-zone": "eu-west-1a",
            "/latest/meta-data/placement/region": "eu-west-1",
            "/latest/meta-data/iam/info": json.dumps({"Code": "Success"}),
            "/latest/meta-data/iam/security-credentials/": ROLE,
            f"/latest/meta-data/iam/security-credentials/{ROLE}": json.dumps(credentials),
            "/latest/meta-data/identity-credentials/ec2/security-credentials/ec2-instance": json.dumps(own),
            "/latest/user-data": words["user-data"],
            "/latest/dynamic/instance-identity/document": json.dumps({"region": "eu-west-1"}),
        }

    def answer(self, asked: Asked, *, held: bool = False) -> Reply | Hold:
        """Answer a request."""
        del held
        if asked.header(FORWARDED_FOR) is not None:
            return Reply(403)
        if asked.path == TOKEN_PATH:
            return self._token(asked)
        token = asked.header(_TOKEN)
        if token not in self._tokens if token is not None else self._required:
            return Reply(401, b"Unauthorized", (("Server", "EC2ws"),))
        if asked.method not in ("GET", "HEAD"):
            return Reply(405)
        # A value is given with a slash behind its path as well: botocore asks so for the zone.
        paths = (asked.path, f"{asked.path}/", asked.path.removesuffix("/"))
        page = next((self._pages[path] for path in paths if path in self._pages), None)
        if page is None:
            return Reply(404, b"Not Found", (("Server", "EC2ws"),))
        return Reply(200, page.encode(), (("Content-Type", "text/plain"), ("Server", "EC2ws")))

    def _token(self, asked: Asked) -> Reply:
        if asked.method != "PUT":
            return Reply(405, headers=(("Allow", "OPTIONS, PUT"),))
        seconds = asked.header(_TTL) or ""
        if not seconds.isdecimal() or not 1 <= int(seconds) <= 21600:
            return Reply(400, b"Bad Request")
        token = secrets.token_urlsafe(40)
        self._tokens.add(token)
        return Reply(200, token.encode(), (("Content-Type", "text/plain"), (_TTL, seconds)), self._hops)
