"""filter: the one decision: may this request go to the metadata server, and as what. Pure.

Here: the value that says what is concealed from whom, and the decider that is built from it. Not here: reading heads
(head.py) and targets (target.py), how the value comes about (compile.py), the server.
Invariant: a request is forwarded only at the end of ``_objection``, after every check; the strictest rules apply to
whoever is not known while rules differ between clients.

The order of the checks is that of v0.1.12, with its messages; what it did not check comes after.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from podgate.features.metadata import v0112
from podgate.features.metadata.fields import FieldFacts, host_names, look, with_host, without_port
from podgate.features.metadata.profiles import GCE, V0112, Profile, Switch
from podgate.features.metadata.request import MAX_BODY, Headers, Request
from podgate.features.metadata.rules import EVERYWHERE, PolicyRules, ProfileRules
from podgate.features.metadata.spec import PolicySpec
from podgate.features.metadata.target import Odd, RequestTarget, read_target
from podgate.features.metadata.verdict import Reason, TokenUse, Verdict
from podgate.model.frozen import Frozen

_OWN_HOSTS: Final = frozenset({b"127.0.0.1", b"localhost", b"[::1]", b"169.254.169.252"})
"""What a Host may be at any port: nobody can point a name of his at these and have a browser write them."""
_AUDITED_METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"})
_VISIBLE: Final = bytes(range(0x21, 0x7F))
_NO: Final = frozenset({"", "0", "f", "false", "n", "no"})
_TOKEN_HEADER: Final = b"x-aws-ec2-metadata-token"
_OLD_PROFILES: Final = (GCE.name, V0112.name)


class NamedPolicy(Frozen, frozen=True):
    """A policy and what logs call it: ``MetadataPolicy/NAME``, or the path of its file."""

    name: str
    spec: PolicySpec


class Client(Frozen, frozen=True):
    """One Pod of this node.

    Attributes:
        name: ``NAMESPACE/POD``.
        policies: indexes of the policies that apply to it.
    """

    name: str
    policies: tuple[int, ...] = ()


class Filter(Frozen, frozen=True):
    """All that decides. JSON can carry it to another process (``msgspec.json``).

    Attributes:
        profile: the cloud.
        opened: the switches that are open; those of the profile, changed by the settings.
        policies: the users' own rules.
        clients: the Pods of this node by address; None when nobody looked for them.
        pod_ranges: ranges that all Pods of this node are in, so that nobody else is served; empty when not known.
        strictest: everybody gets the strictest rules, since policies are on and not known yet, or one is broken.
        stale: addresses may be other Pods' by now, so what a policy allows the Pods that it selects is not allowed.
        check_host: whether ``Host`` must name the metadata server.
        hosts: other names that it may have.
        require_header: whether the profile's header is required everywhere.
        audit: whether what is denied is only noted.
    """

    profile: Profile = GCE
    opened: tuple[Switch, ...] = GCE.open
    policies: tuple[NamedPolicy, ...] = ()
    clients: Mapping[str, Client] | None = None
    pod_ranges: tuple[str, ...] = ()
    strictest: bool = False
    stale: bool = False
    check_host: bool = True
    hosts: tuple[str, ...] = ()
    require_header: bool = False
    audit: bool = False


class _Objection(NamedTuple):
    """Why not."""

    reason: Reason
    message: str
    rule: str
    status: int = 403
    allow: str = ""


class _Applied(NamedTuple):
    """The rules for one client."""

    profile: ProfileRules
    policies: PolicyRules
    client: str = ""


class Decider:
    """Decides requests. Holds matchers made of a filter, and changes nothing: make another for another filter."""

    def __init__(self, filter_: Filter) -> None:
        self.filter = filter_
        profile = filter_.profile
        self._wanted = tuple((name.encode(), value.encode()) for name, value in profile.headers)
        self._hosts = host_names(profile.hosts, filter_.hosts)
        self._default_host = profile.hosts[0].encode("ascii")
        self._takes_tokens = any(name == _TOKEN_HEADER for name, _ in self._wanted)
        self._usual = ProfileRules(profile, filter_.opened)
        self._differ = filter_.strictest or not all(policy.spec.subjects.everybody for policy in filter_.policies)
        everybody = tuple(index for index, policy in enumerate(filter_.policies) if policy.spec.subjects.everybody)
        self._everybody = _Applied(self._usual, self._policies(everybody))
        self._strictest = _Applied(ProfileRules(profile, ()), self._policies(everybody, deny_all=True))
        self._clients = self._known()

    def _known(self) -> Mapping[str, _Applied]:
        """Give each client its rules; clients with the same policies share them."""
        shared: dict[tuple[int, ...], PolicyRules] = {}
        known = {}
        for address, client in (self.filter.clients or {}).items():
            if client.policies not in shared:
                shared[client.policies] = self._policies(client.policies)
            known[address] = _Applied(self._usual, shared[client.policies], client.name)
        return known

    def _policies(self, indexes: tuple[int, ...], *, deny_all: bool = False) -> PolicyRules:
        rules = []
        for index, policy in enumerate(self.filter.policies):
            counts = index in indexes
            grants = counts and (policy.spec.subjects.everybody or not self.filter.stale)
            for number, rule in enumerate(policy.spec.rules):
                if grants if rule.verdict == "allow" else counts or deny_all:
                    rules.append((f"{policy.name} rules[{number}]", rule))
        return PolicyRules(rules)

    def client(self, source: str) -> str:
        """Give the Pod at an address, as ``NAMESPACE/POD``; empty when it is not known."""
        known = self._clients.get(source)
        return "" if known is None else known.client

    def decide(self, request: Request) -> Verdict:
        """Decide one request."""
        seen = look(request.headers, self._wanted)
        target = read_target(request.target)
        applied = self._applied(request.source)
        found = self._objection(request, seen, target, applied)
        if isinstance(found, _Objection):
            if self.filter.audit:
                let_through = _audited_target(request, target, found)
                if let_through:
                    verdict = self._forward(request, seen, target, applied.client, found.rule)
                    return replace(verdict, reason=found.reason, target=let_through, audited=True)
            return Verdict(
                action="deny",
                reason=found.reason,
                rule=found.rule,
                status=found.status,
                message=found.message,
                allow=found.allow,
                client=applied.client,
            )
        return self._forward(request, seen, target, applied.client, found)

    def _applied(self, source: str) -> _Applied:
        if self.filter.strictest:
            return self._strictest._replace(client=self.client(source))
        known = self._clients.get(source)
        if known is not None:
            return known
        return self._strictest if self._differ else self._everybody

    def _objection(
        self, request: Request, seen: FieldFacts, target: RequestTarget | Odd, applied: _Applied
    ) -> _Objection | str:
        """Give what speaks against a request, else the rule that lets it through."""
        if seen.forwarded_for:
            return _Objection("ForwardedFor", v0112.FORWARDED_FOR, "x-forwarded-for")
        if request.method == b"CONNECT":
            return _not_allowed(EVERYWHERE)
        if isinstance(target, Odd):
            return self._odd(request.target, target)
        if target.host and not self._is_host(target.host):
            return self._odd(request.target, Odd("ForeignTarget", "the target names another server"))
        method = request.method.decode("ascii")
        decided = self._by_path(method, target, applied)
        if isinstance(decided, _Objection):
            return decided
        host = target.host or seen.host
        if self.filter.check_host and host is not None and not self._is_host(host):
            return _Objection("HostNotAllowed", "The Host header does not name the metadata server", "host")
        if not seen.marked and self._needs_header(request, target.path, applied.profile):
            name, value = self.filter.profile.headers[0]
            shown = f"{name.title()}: {value.title()}" if value else name
            return _Objection("HeaderRequired", f"The header {shown} is required here", "required-header")
        return _by_method(request, method, target.path, applied.profile) or decided

    def _needs_header(self, request: Request, path: str, profile: ProfileRules) -> bool:
        """Say whether the header is required: by the option, but for asking for a token, or by the profile."""
        asks_token = self._token_use(request, path, ()) == "issue"
        return (self.filter.require_header and not asks_token) or profile.needs_header(path)

    def _odd(self, raw: bytes, odd: Odd) -> _Objection:
        """Answer a target that is never forwarded: with what v0.1.12 said, where it refused it too."""
        if self.filter.profile.name in _OLD_PROFILES:
            old = v0112.old_answer(raw)
            if old is not None:
                named = old.rule in ("query", "target")
                return _Objection(
                    old.reason, old.message, old.rule if named else f"{self.filter.profile.name}/{old.rule}"
                )
        return _Objection(odd.reason, f"{v0112.UNSAFE}: {odd.what}", "target")

    def _by_path(self, method: str, target: RequestTarget, applied: _Applied) -> _Objection | str:
        path, pairs, profile, policies = target.path, target.pairs, applied.profile, applied.policies
        if pairs:
            unknown = profile.unknown_key(path, pairs, () if policies.empty else policies.keys_at(path, method, pairs))
            if unknown is not None:
                return _Objection("UnknownQueryKey", v0112.unrecognized(unknown), "query")
        recursive = any(key == "recursive" for key, _ in pairs) or (bool(pairs) and profile.hides_recursion(pairs))
        outcome = None
        if not policies.empty:
            children = profile.profile.answers_with_children
            outcome = policies.outcome(path, method, pairs, recursive=recursive, children=children)
        allowed = outcome is not None and outcome.verdict == "allow"
        if recursive and not allowed and not profile.recursion_at(path):
            return _Objection("Recursion", v0112.RECURSIVE, f"{profile.profile.name}/recursion")
        if not profile.known(path):
            return _Objection("UnknownApi", v0112.NOT_ALLOWED, f"{profile.profile.name}/roots")
        concealing = None if allowed else profile.concealing(path)
        if concealing is not None:
            return _Objection("Concealed", v0112.CONCEALED, concealing)
        if outcome is not None and not allowed:
            return _Objection("PolicyDenied", v0112.CONCEALED, outcome.rule)
        return outcome.rule if outcome is not None else f"{profile.profile.name}/roots"

    def _is_host(self, host: bytes) -> bool:
        lower = host.lower()
        return lower in self._hosts or without_port(lower) in _OWN_HOSTS

    def _forward(
        self, request: Request, seen: FieldFacts, target: RequestTarget | Odd, client: str, rule: str
    ) -> Verdict:
        """Give the verdict that forwards; an Odd target, which only an audit forwards, has no bytes yet."""
        sent, waits, redact, path, raw = seen.sent, False, "", "", b""
        host = seen.host or self._default_host
        if isinstance(target, RequestTarget):
            path, raw, host = target.path, target.raw, target.host or host
            redact = self._usual.redacted(path)
            waits = any(key == "wait_for_change" and (value or "").lower() not in _NO for key, value in target.pairs)
        if host != seen.host:
            sent = with_host(sent, host)
        if redact:
            sent = tuple(field for field in sent if field[0].lower() not in (b"accept-encoding", b"range"))
        return Verdict(
            action="forward",
            reason="Allowed",
            rule=rule,
            target=raw,
            headers=sent,
            waits=waits,
            token=self._token_use(request, path, sent),
            redact=redact,
            client=client,
        )

    def _token_use(self, request: Request, path: str, sent: Headers) -> TokenUse:
        if not self._takes_tokens:
            return "none"
        if request.method == b"PUT" and path.rstrip("/") == "/latest/api/token":
            return "issue"
        return "check" if any(name.lower() == _TOKEN_HEADER for name, _ in sent) else "none"


def _by_method(request: Request, method: str, path: str, profile: ProfileRules) -> _Objection | None:
    if method not in EVERYWHERE:
        allowed = profile.methods(path)
        if method not in allowed:
            return _not_allowed(allowed)
    if request.content_length > MAX_BODY:
        return _Objection("BodyTooLong", f"The body is longer than {MAX_BODY} bytes", "body", 413)
    if request.content_length and method in EVERYWHERE:
        return _Objection("UnexpectedBody", f"{method} with a body is not forwarded", "body")
    return None


def _not_allowed(allowed: tuple[str, ...]) -> _Objection:
    words = ", ".join(allowed)
    return _Objection("MethodNotAllowed", f"Only {words} are allowed here", "methods", 405, words)


def _audited_target(request: Request, target: RequestTarget | Odd, found: _Objection) -> bytes:
    """Give what an audit sends although it is denied; empty for what could not be sent safely."""
    if request.content_length > MAX_BODY or request.method not in _AUDITED_METHODS:
        return b""
    if isinstance(target, RequestTarget):
        return b"" if found.reason == "ForeignTarget" else target.raw
    raw = request.target
    return raw if raw[:1] == b"/" and not raw.translate(None, _VISIBLE) else b""
