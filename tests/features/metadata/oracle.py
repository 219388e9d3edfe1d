"""A second opinion about what goes upstream: a naive normaliser that shares no code with the product.

It decodes until nothing changes, takes any case for the same and any delimiter for a separator, and trims what a server
might trim. Whatever it then reads as a concealed path should not have been sent.
"""

import re
from urllib.parse import unquote_to_bytes

SECRETS = (
    r"attributes/kube-env",
    r"attributes/kube-master-certs",
    r"attributes/kubeconfig",
    r"attributes/kubelet-config",
    r"attributes/configure-sh",
    r"attributes/user-data",
    r"attributes/startup-script",
    r"attributes/shutdown-script",
    r"attributes/k8s-node-setup-psm1",
    r"attributes/user-profile-psm1",
    r"attributes/gce-container-declaration",
    r"attributes/windows-keys",
    r"attributes/ssh-?keys",
    r"service-accounts/(?:[^/]+/)+identity",
    r"instance/gce-workload-certificates",
    r"instance/credentials",
    r"v1(?:beta1)?/oslogin",
)
CONCEALED = re.compile(rf"(?:^|/)(?:{'|'.join(SECRETS)})(?:/|$)")
ACCOUNT = re.compile(r"(?:^|/)service-accounts/[^/]+/")
DELIMITERS = re.compile(r"[/\\;,?#|&=:!$'()*\"<>^`{}\[\]\s\x00-\x20\x7f+]+")
ODD_LETTERS = {"\u2010": "-", "\u2011": "-", "\u00ad": "-", "\u0130": "i", "\u0131": "i", "\u017f": "s", "\u212a": "k"}


def decoded(text: bytes) -> bytes:
    """Decode until nothing changes, the ``%uXXXX`` of old servers and overlong UTF-8 included."""
    for _ in range(20):
        plain = re.sub(rb"%u00([0-9A-Fa-f]{2})", rb"%\1", text)
        plain = unquote_to_bytes(plain)
        plain = re.sub(rb"\xc0([\x80-\xbf])", lambda found: bytes((found[1][0] - 0x80,)), plain)
        plain = re.sub(rb"\xc1([\x80-\xbf])", lambda found: bytes((found[1][0] - 0x40,)), plain)
        if plain == text:
            return text
        text = plain
    raise AssertionError(f"decoding does not end: {text!r}")


def readings(target: bytes) -> set[str]:
    """Give the paths that somebody might read in a target: the path alone, and all of it; cleaned, and not."""
    found = set()
    for part in (target.partition(b"?")[0], decoded(target).partition(b"?")[0]):
        text = decoded(part).decode("utf-8", "replace")
        text = "".join(ODD_LETTERS.get(character, character) for character in text).lower()
        segments = [segment.strip(". ") or segment for segment in DELIMITERS.split(text) if segment.strip(" ")]
        found.add("/" + "/".join(segment for segment in segments if segment not in (".", "..")))
        cleaned: list[str] = []
        for segment in segments:
            if segment == "..":
                del cleaned[-1:]
            elif segment != ".":
                cleaned.append(segment)
        found.add("/" + "/".join(cleaned))
    return found


def finding(target: bytes) -> str:
    """Say what is wrong with a target that was sent upstream; empty when nothing is."""
    for reading in readings(target):
        if CONCEALED.search(reading):
            return f"{target!r} may be read as {reading}"
    query = target.partition(b"?")[2]
    keys = {re.split(r"=", pair)[0].strip() for pair in re.split(r"[&;]", query.decode("latin-1").lower())}
    if any(re.sub(r"[^a-z]", "", decoded(key.encode()).decode("latin-1")) == "recursive" for key in keys):
        path = target.partition(b"?")[0].decode("latin-1")
        if not ACCOUNT.search(path):
            return f"{target!r} is recursive"
    return ""


def bad_bytes(target: bytes) -> str:
    """Say whether a target holds what no target that was rebuilt would."""
    path, _, query = target.partition(b"?")
    if re.search(rb"[^!-~]", target):
        return f"{target!r} has a byte that is not visible"
    if b"%" in path or re.search(rb"//|/\.{1,2}(/|$)|\\|;|#", path) or re.search(rb";|#|\\", query):
        return f"{target!r} has a spelling that is refused"
    return ""
