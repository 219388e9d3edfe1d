"""kubeconfig: which context, cluster and user are taken, and what is refused, by field, file and line."""

import base64

import pytest

from podgate.kubeapi.access import Access, AccessError, Exec, InFile, Login
from podgate.kubeapi.kubeconfig import read_kubeconfig
from podgate.model.secret import Secret

PEM = base64.b64encode(b"PEM").decode()

TEXT = f"""\
apiVersion: v1
kind: Config
current-context: main
contexts:
- name: main
  context: {{cluster: prod, user: admin, namespace: net}}
- name: bare
  context: {{cluster: local}}
- name: files
  context: {{cluster: files, user: files}}
- name: plugin
  context: {{cluster: prod, user: plugin}}
clusters:
- name: prod
  cluster:
    server: https://api.example:6443/
    certificate-authority-data: {PEM}
    tls-server-name: kubernetes
    insecure-skip-tls-verify: false
- name: local
  cluster: {{server: "http://127.0.0.1:8080"}}
- name: files
  cluster: {{server: "https://10.0.0.1", certificate-authority: pki/ca.crt}}
users:
- name: admin
  user: {{token: s3cr3t}}
- name: files
  user: {{client-certificate: /pki/me.crt, client-key: pki/me.key, tokenFile: token, token: unused}}
- name: plugin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: bin/login
      args: [get, token]
      env: [{{name: PROFILE, value: prod}}]
      provideClusterInfo: true
      interactiveMode: IfAvailable
      installHint: pip install login
"""


def read(text: str, context: str = "") -> Access:
    return read_kubeconfig("/etc/kube/config", text.encode(), context)


def test_the_current_context_counts() -> None:
    assert read(TEXT) == Access(
        server="https://api.example:6443",
        authority=Secret(b"PEM"),
        server_name="kubernetes",
        namespace="net",
        login=Login(token=Secret(b"s3cr3t")),
        origin="/etc/kube/config",
    )


def test_another_context_may_be_asked_for() -> None:
    access = read(TEXT, "bare")
    assert (access.server, access.login, access.namespace) == ("http://127.0.0.1:8080", Login(), "default")


def test_paths_are_relative_to_the_file() -> None:
    access = read(TEXT, "files")
    assert access.authority == InFile("/etc/kube/pki/ca.crt")
    # The file is the newer one: it is read again when it changes.
    assert access.login == Login(InFile("/etc/kube/token"), InFile("/pki/me.crt"), InFile("/etc/kube/pki/me.key"))


def test_a_plugin() -> None:
    assert read(TEXT, "plugin").login.program == Exec(
        "client.authentication.k8s.io/v1",
        "/etc/kube/bin/login",
        ("get", "token"),
        (("PROFILE", "prod"),),
        cluster_info=True,
        hint="pip install login",
    )


def test_nothing_secret_shows() -> None:
    assert "s3cr3t" not in repr(read(TEXT))
    assert "s3cr3t" not in str(read(TEXT))


def one(cluster: str = "server: 'https://a'", user: str = "token: x", rest: str = "") -> str:
    return (
        f"current-context: c\ncontexts:\n- name: c\n  context: {{cluster: k, user: u{rest}}}\n"
        f"clusters:\n- name: k\n  cluster:\n    {cluster}\nusers:\n- name: u\n  user:\n    {user}\n"
    )


EXEC = "exec: {apiVersion: client.authentication.k8s.io/v1, command: x"

REFUSED = {
    "no verification": (
        one("server: 'https://a'\n    insecure-skip-tls-verify: true"),
        "/etc/kube/config:9: clusters[0].cluster.insecure-skip-tls-verify: the server's certificate is always verified",
    ),
    "plain http": (one("server: 'http://10.0.0.1'"), ':8: clusters[0].cluster.server: "http://10.0.0.1" is plain HTTP'),
    "http to a name that may be anybody": (one("server: 'http://localhost.example'"), "is plain HTTP"),
    "a placeholder": (
        one("server: 'https://api-server.invalid:6443'"),
        ':8: clusters[0].cluster.server: "https://api-server.invalid:6443" stands for an address that is still to be',
    ),
    "no scheme": (one("server: 10.0.0.1:6443"), "is no address: write https://HOST:PORT"),
    "a password in the address": (one("server: 'https://me:pw@a'"), "holds more than a host"),
    "no server": (one("{}"), 'clusters[0].cluster.server: "" is no address'),
    "a proxy": (one("server: 'https://a'\n    proxy-url: http://p"), ":9: clusters[0].cluster.proxy-url: a proxy"),
    "a password": (one(user="username: me"), ":12: users[0].user.username: a password is no login"),
    "auth-provider": (
        one(user="auth-provider: {name: gcp}"),
        "users[0].user.auth-provider: this way of login was removed",
    ),
    "acting as": (one(user="as: root"), "users[0].user.as: acting as somebody else is not supported"),
    "half a certificate": (one(user="client-certificate: c"), "users[0].user: client-key is missing"),
    "not base64": (one(user="client-key-data: '%%'"), ":12: users[0].user.client-key-data: this is not base64"),
    "not a text": (one(user="token: 7"), ":12: users[0].user.token: this must be a text"),
    "an old plugin": (
        one(user="exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: x}"),
        "is not spoken",
    ),
    "a plugin without a program": (
        one(user="exec: {apiVersion: client.authentication.k8s.io/v1}"),
        "program is missing",
    ),
    "a plugin that asks": (one(user=EXEC + ", interactiveMode: Always}"), "nobody is there to answer it"),
    "a plugin with odd arguments": (one(user=EXEC + ", args: [1]}"), "users[0].user.exec.args: this must be a list"),
    "a plugin with an odd environment": (one(user=EXEC + ", env: [{name: A}]}"), "exec.env: this must be a list"),
    "no context": ("clusters: []", "current-context: no context is chosen: set it, or give --context NAME"),
    "an unknown context": ("current-context: x\ncontexts: []", 'contexts: there is no context "x"'),
    "an unknown cluster": (
        one().replace("name: k", "name: kk"),
        'no cluster "k", which contexts[0].context.cluster names',
    ),
    "an unknown user": (one().replace("name: u", "name: v"), 'there is no user "u"'),
    "not YAML": ("a: [", "/etc/kube/config:"),
    "a list": ("[]", "this is not a kubeconfig"),
    "nothing": ("", "this is not a kubeconfig"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(AccessError) as caught:
        read(text)
    assert message in str(caught.value)


def test_only_the_context_that_is_taken_is_judged() -> None:
    text = TEXT.replace('server: "http://127.0.0.1:8080"', 'server: "http://10.0.0.1", insecure-skip-tls-verify: true')
    assert read(text).server == "https://api.example:6443"
    with pytest.raises(AccessError, match="insecure-skip-tls-verify"):
        read(text, "bare")


def test_a_context_that_is_nearly_there_is_suggested() -> None:
    with pytest.raises(AccessError, match=r'no context "mian", which --context names \(did you mean "main"\?\)'):
        read(TEXT, "mian")
