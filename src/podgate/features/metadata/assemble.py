"""assemble: settings and policies to the filter, without Kubernetes and without YAML. Pure.

Here: what the proxy's own process does with its flags and a policy in JSON. Not here: objects and YAML (compile.py).
Invariant: a policy that cannot be used as written makes everybody's rules the strictest; it never makes them weaker.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from podgate.features.metadata.filter import Client, Filter, NamedPolicy
from podgate.features.metadata.settings import Settings
from podgate.features.metadata.spec import Mistake, PolicySpec, mistakes, read_spec
from podgate.model.frozen import ObjectRef, file_ref
from podgate.model.problems import Problem


def filter_of(
    settings: Settings,
    policies: Sequence[NamedPolicy] = (),
    clients: Mapping[str, Client] | None = None,
    pod_ranges: Sequence[str] = (),
    *,
    strictest: bool = False,
    stale: bool = False,
) -> Filter:
    """Give the filter.

    Args:
        settings: the options.
        policies: the users' rules.
        clients: this node's Pods by address (clients.py); None when nobody looked for them.
        pod_ranges: ranges that all of them are in.
        strictest: whether policies are on and cannot be used, or are not known yet.
        stale: whether the clients are too old to be allowed more than others.
    """
    return Filter(
        profile=settings.cloud,
        opened=settings.opened,
        policies=tuple(policies),
        clients=clients,
        pod_ranges=tuple(pod_ranges),
        strictest=strictest,
        stale=stale,
        check_host=settings.host_check,
        hosts=settings.hosts,
        require_header=settings.require_header,
        audit=settings.audit,
    )


def from_json_files(settings: Settings, files: Iterable[tuple[str, bytes]]) -> tuple[Filter, tuple[Problem, ...]]:
    """Give the filter from the policy files, as the proxy's own process reads them: JSON only.

    Args:
        settings: the options.
        files: path and bytes of each, in the order of their names.
    """
    policies: list[NamedPolicy] = []
    problems: list[Problem] = []
    for path, data in files:
        read = read_spec(data)
        found = [read] if isinstance(read, Mistake) else list(mistakes(read))
        problems += as_problems(file_ref(path), found)
        if isinstance(read, PolicySpec) and not found:
            policies.append(NamedPolicy(path, read))
    return filter_of(settings, policies, strictest=bool(problems)), tuple(problems)


def as_problems(ref: ObjectRef, found: Iterable[Mistake], below: str = "") -> Iterator[Problem]:
    """Give mistakes as problems of an object; ``below`` is where the spec stands in it, as ``spec.``."""
    for field, reason, message in found:
        yield Problem(ref, "error", reason, f"{below}{field}".rstrip("."), message)
