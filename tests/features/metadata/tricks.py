"""Targets as an attacker would write them: a path that is worth something, and the tricks of the reports upon it."""

from collections.abc import Callable

from hypothesis import strategies as st

V1 = "/computeMetadata/v1"
PATHS = (
    *(f"{V1}/instance/attributes/{name}" for name in ("kube-env", "kubeconfig", "ssh-keys", "startup-script", "tags")),
    f"{V1}/instance/service-accounts/default/identity",
    f"{V1}/instance/service-accounts/default/token",
    f"{V1}/instance/service-accounts/default/",
    f"{V1}/instance/service-accounts/123-compute@developer.gserviceaccount.com/email",
    f"{V1}/instance/gce-workload-certificates/workload-identities",
    f"{V1}/instance/zone",
    f"{V1}/instance/",
    f"{V1}/oslogin/users",
    f"{V1}/",
    "/computeMetadata/v1beta1/instance/attributes/kube-env",
    "/0.1/meta-data/attributes/kube-env",
    "/0.1/meta-data/service-accounts/default/identity",
    "/",
)
QUERIES = (
    *(
        "",
        "?recursive=true",
        "?recursive",
        "?alt=json&recursive=true",
        "?alt=text;recursive=true",
        "?recursive=true%zz",
    ),
    *("?alt=text", "?wait_for_change=true&timeout_sec=360", "?audience=https%3A%2F%2Fx.example%2F%3Fa%3Db&format=full"),
    *(
        "?%72ecursive=1",
        "?Recursive=1",
        "?re%08cursive=1",
        "?;recursive",
        "?&&recursive&",
        "?alt=json%26recursive=true",
    ),
    *("?scopes=a,b", "?scopes=a+b", "?x=%", "?=recursive", "?recursive%00=1", "?recursive%20=1", "? recursive"),
)
INSERTED = (
    *("/", "//", "/./", "/../", "/x/../", "%2f", "%2F", "%5c", "\\", ";", ";x=1", "%3b", ".", "..", "%2e", "%252e"),
    *(
        "%00",
        "%20",
        " ",
        "+",
        "%09",
        "%0a",
        "%0d",
        "\t",
        "\x00",
        "%7f",
        "%C0%AF",
        "%c0%ae",
        "%u002f",
        "%E2%80%90",
        "\u2010",
    ),
    *(
        "%",
        "%2",
        "%zz",
        "%25",
        "%2525",
        "#",
        "?",
        "%3f",
        "%23",
        "@",
        "%40",
        ",",
        "=",
        ":",
        "*",
        "~",
        "|",
        "'",
        '"',
        "%EF%BC%8F",
    ),
)
Trick = Callable[[str], str]


def _encoded(text: str, at: int, times: int, lower: bool) -> str:
    if not text or ord(text[at % len(text)]) > 0x7F:
        return text
    at %= len(text)
    code = f"%{ord(text[at]):02x}" if lower else f"%{ord(text[at]):02X}"
    for _ in range(times):
        code = code.replace("%", "%25")
    return text[:at] + code + text[at + 1 :]


def _swapped(text: str, at: int) -> str:
    at %= max(1, len(text))
    return text[:at] + text[at : at + 1].swapcase() + text[at + 1 :]


PLACES = st.integers(0, 80)
TRICKS: st.SearchStrategy[Trick] = st.one_of(
    st.builds(
        lambda at, times, lower: lambda text: _encoded(text, at, times, lower),
        PLACES,
        st.integers(0, 2),
        st.booleans(),
    ),
    st.builds(
        lambda at, what: lambda text: text[: at % (len(text) + 1)] + what + text[at % (len(text) + 1) :],
        PLACES,
        st.sampled_from(INSERTED),
    ),
    st.builds(lambda what: lambda text: text + what, st.sampled_from(INSERTED)),
    st.builds(lambda at: lambda text: _swapped(text, at), PLACES),
    st.just(str.upper),
    st.just(lambda text: text.replace("/", "//", 1)),
    st.just(lambda text: text.replace("/", "\\")),
    st.builds(
        lambda host: lambda text: f"http://{host}{text}",
        st.sampled_from(("metadata", "evil.example", "a@metadata", "")),
    ),
    st.builds(
        lambda prefix: lambda text: prefix + text, st.sampled_from(("/.", "/x/..", "//x", "/%2e%2e", "http:", "/", "."))
    ),
)


def _spelled(path: str, query: str, tricks: list[Trick]) -> bytes:
    for trick in tricks:
        path = trick(path)
    return (path + query).encode("utf-8")


TARGETS: st.SearchStrategy[bytes] = st.one_of(
    st.builds(_spelled, st.sampled_from(PATHS), st.sampled_from(QUERIES), st.lists(TRICKS, max_size=3)),
    st.lists(
        st.sampled_from(
            (*INSERTED, "computeMetadata", "v1", "instance", "attributes", "kube-env", "recursive", "/", "/")
        ),
        max_size=14,
    ).map(lambda parts: ("/computeMetadata/v1/instance/" + "".join(parts)).encode()),
    st.binary(max_size=60).map(lambda data: b"/computeMetadata/v1/" + data),
)
