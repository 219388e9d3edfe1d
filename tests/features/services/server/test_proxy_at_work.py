"""Whether kube-proxy works on a node: processes by any of its names, pages, and what cannot be told."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from podgate.features.services.server.proxy_at_work import Pages, ProxyAtWork, at_work, neighbours, pages_of
from podgate.observe.answers import TEXT, Page
from podgate.observe.listen import Listen
from podgate.observe.pages import PageServer
from tests.support.netns import NetNamespace, netns

OWN, OTHER = "net:[1]", "net:[2]"


def proc(folder: Path, comm: str, words: Sequence[str], network: str = OWN) -> Path:
    """Make what /proc would show: process 7 is the one that asks, 8 the one in question."""
    for number in ("7", "8"):
        (folder / number / "ns").mkdir(parents=True)
    for number, name, said in (("7", "kube-proxy", ("kube-proxy",)), ("8", comm, words)):
        (folder / number / "comm").write_text(f"{name}\n")
        (folder / number / "cmdline").write_text("".join(f"{word}\0" for word in said))
    (folder / "7" / "ns" / "net").symlink_to(OWN)
    if network:
        (folder / "8" / "ns" / "net").symlink_to(network)
    (folder / "self").symlink_to("7")
    (folder / "thread-self").symlink_to("7")
    return folder


HERE: Final = ["process 8 (kube-proxy) runs on this node"]


@pytest.mark.parametrize(
    ("comm", "words", "network", "expected"),
    [
        ("kube-proxy", ["/usr/local/bin/kube-proxy", "--config=x"], OWN, HERE),
        ("kube-proxy", ["kube-proxy"], OTHER, []),
        ("renamed", ["/opt/kube-proxy"], OWN, HERE),
        ("kube-proxy", ["renamed"], OWN, HERE),
        ("hyperkube", ["/hyperkube", "kube-proxy", "--v=2"], OWN, HERE),
        ("hyperkube", ["/hyperkube", "proxy"], OWN, HERE),
        ("hyperkube", ["/hyperkube", "kubelet"], OWN, []),
        ("hyperkube", ["/hyperkube"], OWN, []),
        ("k3s-server", ["/usr/local/bin/k3s server"], OWN, []),  # its pages tell
        ("kube-proxy-expo", ["kube-proxy-exporter"], OWN, []),
        ("kube-proxy", ["/usr/bin/python3", "-P", "/opt/podgate/bin/kube-proxy"], OWN, []),  # podgate by that name
        ("kube-proxy", [], "", []),  # it has ended, and nobody has waited for it
    ],
)
def test_a_process_by_any_of_its_names(
    comm: str, words: Sequence[str], network: str, expected: Sequence[str], tmp_path: Path
) -> None:
    assert list(neighbours(proc(tmp_path, comm, words, network))) == expected


def test_whoever_writes_over_its_words_hides_nothing_and_ends_nothing(tmp_path: Path) -> None:
    """A process may have words of any length without an end (``prctl`` PR_SET_MM_MAP, setproctitle)."""
    folder = proc(tmp_path, "any", [])
    for said in (b"/hyperkube", b"hyperkube", b"\xff" * 5000 + b"/hyperkube"):
        (folder / "8" / "cmdline").write_bytes(said)
        assert list(neighbours(folder)) == []
    (folder / "8" / "cmdline").write_bytes(b"/opt/kube-proxy")
    assert list(neighbours(folder)) == HERE


def test_words_are_read_of_processes_on_our_network_alone_and_not_without_end(tmp_path: Path) -> None:
    folder = proc(tmp_path / "elsewhere", "any", [], OTHER)
    (folder / "8" / "cmdline").unlink()
    os.mkfifo(folder / "8" / "cmdline")  # whoever opened it would wait for ever
    assert list(neighbours(folder)) == []
    folder = proc(tmp_path / "here", "any", ["kube-proxy"])
    with (folder / "8" / "cmdline").open("r+b") as words:
        words.truncate(1 << 40)
    assert list(neighbours(folder)) == HERE


NAMED: Final = (
    "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'kube-proxy', 0, 0, 0); print('named', flush=True);"
    " sys.stdin.read()"
)
ASK: Final = "from podgate.features.services.server.proxy_at_work import neighbours; print(*neighbours(), sep='\\n')"
PODS_RIGHTS: Final = ("setpriv", "--bounding-set", "-all,+net_admin,+net_raw", "--inh-caps", "-all")


@contextmanager
def kube_proxy(namespace: NetNamespace) -> Iterator[int]:
    """Have a process of its name in a namespace, with all rights."""
    command = ("bash", "-c", 'exec -a kube-proxy "$@"', "bash", sys.executable, "-c", NAMED)
    with namespace.running(*command, says="named") as process:
        yield process.pid


def seen(namespace: NetNamespace, pid: int, *under: str) -> str:
    """Give what a process that ``under`` starts says of one kube-proxy; other tests may have others."""
    lines = namespace.run(*under, sys.executable, "-c", ASK).splitlines()
    return next((line for line in lines if line.startswith(f"process {pid} ")), "")


@pytest.mark.kernel
def test_a_process_counts_on_its_own_node_alone_and_when_that_cannot_be_seen() -> None:
    with netns() as here, netns() as elsewhere, kube_proxy(here) as pid:
        assert seen(here, pid) == f"process {pid} (kube-proxy) runs on this node"
        assert seen(elsewhere, pid) == ""
        # A Pod that sees the node's processes (hostPID) and has fewer rights than they.
        unsure = f"process {pid} (kube-proxy) runs, and we may not see whether it is on this node"
        assert seen(here, pid, *PODS_RIGHTS) == seen(elsewhere, pid, *PODS_RIGHTS) == unsure


def hiding(how: str) -> tuple[str, ...]:
    """Give the words that start a program with a Pod's rights where /proc hides processes, but from one group."""
    script = f'mount -t proc -o hidepid={how},gid=54321 proc /proc && exec {" ".join(PODS_RIGHTS)} "$@"'
    return ("unshare", "--mount", "sh", "-c", script, "sh")


@pytest.mark.kernel
@pytest.mark.parametrize(
    "under",
    [("unshare", "--pid", "--fork", "--mount-proc"), hiding("noaccess"), hiding("invisible"), hiding("ptraceable")],
    ids=["process ids of its own", "noaccess", "invisible", "ptraceable"],
)
def test_where_proc_does_not_show_it_pages_alone_tell(under: Sequence[str]) -> None:
    with netns() as here, kube_proxy(here) as pid:
        assert seen(here, pid, *under) == ""


# --- pages ------------------------------------------------------------------------------------------------------

HEALTH, METRICS = "0.0.0.0:10256", "127.0.0.1:10249"
NOT_FOUND: Final = b"HTTP/1.0 404 Not Found\r\n\r\n"
UNREADY: Final = b"HTTP/1.0 503 Service Unavailable\r\nServer: podgate\r\n\r\nnot yet\n"
CATCH_ALL: Final = b"HTTP/1.0 200 OK\r\nX-Server: podgate\r\n\r\nServer: podgate\r\nwelcome\n"
"""What a server with one page for all paths may say, whoever it is."""
THEIR_CONFIG: Final = b'HTTP/1.0 200 OK\r\n\r\n{"kubeproxy.config.k8s.io":{}}'
OUR_CONFIG: Final = b'HTTP/1.0 200 OK\r\n\r\n{"podgate.dev/services":{}}'
ANSWERS: Final = """
import socket, sys
listening = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET6 if ":" in sys.argv[1] else 2)
print("ready", flush=True)
while True:
    client = listening.accept()[0]
    client.recv(1000)
    for part in eval(sys.argv[3]).split(b"\\r\\n\\r\\n", 1):
        client.sendall(part + b"\\r\\n\\r\\n")
    client.close()
"""


@contextmanager
def answering(namespace: NetNamespace, where: str, answer: bytes) -> Iterator[None]:
    """Answer whatever is asked somewhere, head and body apart."""
    host, _, port = where.rpartition(":")
    with namespace.running(sys.executable, "-c", ANSWERS, host, port, repr(answer), says="ready"):
        yield


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers is waited for on a busy machine too."""
    monkeypatch.setattr("podgate.features.services.server.proxy_at_work._ANSWER_SECONDS", 60.0)


def asked(namespace: NetNamespace, health: str = HEALTH, metrics: str = METRICS) -> str:
    return namespace.call(lambda: asyncio.run(at_work(pages_of(health, metrics))))


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("where", "answer", "expected"),
    [
        ("127.0.0.1:10256", NOT_FOUND, "somebody answers at 127.0.0.1:10256, where it tells its health"),
        ("::1:10256", NOT_FOUND, "somebody answers at [::1]:10256, where it tells its health"),
        ("127.0.0.1:10256", b"", "somebody answers at 127.0.0.1:10256, where it tells its health"),
        ("127.0.0.1:10256", CATCH_ALL, "somebody answers at 127.0.0.1:10256, where it tells its health"),
        ("127.0.0.1:10256", UNREADY, ""),  # it is us
        ("127.0.0.1:10249", THEIR_CONFIG, "it answers at 127.0.0.1:10249, where it tells its metrics"),
        ("127.0.0.1:10249", OUR_CONFIG, ""),
        ("127.0.0.1:10249", NOT_FOUND, ""),
    ],
)
@pytest.mark.usefixtures("patient")
def test_who_answers_where_it_tells_its_health_and_metrics(where: str, answer: bytes, expected: str) -> None:
    ours = [(HEALTH, METRICS), ("", ""), ("127.0.0.1:10356", "127.0.0.1:10349")]
    with netns() as namespace:
        with answering(namespace, where, answer):
            assert [asked(namespace, *each) for each in ours] == [expected] * len(ours)
        assert [asked(namespace, *each) for each in ours] == [""] * len(ours)


@pytest.mark.kernel
@pytest.mark.usefixtures("patient")
def test_another_address_of_its_file_is_asked_too() -> None:
    with netns() as namespace, answering(namespace, "127.0.0.1:20256", NOT_FOUND):
        assert asked(namespace, "0.0.0.0:20256") == "somebody answers at 127.0.0.1:20256, where it tells its health"


@pytest.mark.kernel
def test_what_cannot_be_told_counts() -> None:
    with netns() as namespace:
        silent = namespace.call(lambda: socket.create_server(("127.0.0.1", 10256)))
        with contextlib.closing(silent):
            assert asked(namespace).startswith("it cannot be told who is at 127.0.0.1:10256")
        # Without an address of its own a namespace leads nowhere else.
        assert asked(namespace, "192.0.2.1:10256").startswith("it cannot be told who is at 192.0.2.1:10256")


@asynccontextmanager
async def answering_here(answer: Callable[[], Awaitable[bytes]]) -> AsyncIterator[Listen]:
    """Answer in this process whatever is asked somewhere."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(await answer())
        writer.close()

    async with await asyncio.start_server(served, "127.0.0.1", 0) as server:
        yield Listen("127.0.0.1", server.sockets[0].getsockname()[1])


async def while_each_waits_for_the_others() -> str:
    together = asyncio.Barrier(3)

    async def unready() -> bytes:
        await together.wait()
        return UNREADY

    async with answering_here(unready) as one, answering_here(unready) as two, answering_here(unready) as three:
        return await at_work(Pages((one, two), (three,)))


@pytest.mark.kernel
def test_all_addresses_are_asked_at_once() -> None:
    with netns() as namespace:
        assert namespace.call(lambda: asyncio.run(while_each_waits_for_the_others())) == ""


async def questions(seconds: float) -> tuple[list[str], int]:
    """Ask three times at once and once more; give the answers with how often somebody was asked for them."""
    count = 0

    async def unready() -> bytes:
        nonlocal count
        count += 1
        return UNREADY

    async with answering_here(unready) as listen:
        asked = ProxyAtWork(Pages((listen,)), seconds)
        return [*await asyncio.gather(asked(), asked(), asked()), await asked()], count


@pytest.mark.kernel
def test_an_answer_serves_those_who_ask_meanwhile() -> None:
    with netns() as namespace:
        assert namespace.call(lambda: asyncio.run(questions(3600))) == ([""] * 4, 1)
        assert namespace.call(lambda: asyncio.run(questions(0))) == ([""] * 4, 4)


async def beside_our_own_pages(pages: Mapping[str, Page]) -> str:
    async with PageServer(pages).listening(Listen("127.0.0.1", 0)) as listen:
        return await at_work(Pages((listen,)))


@pytest.mark.kernel
@pytest.mark.parametrize("page", ["/readyz", "/other"])
@pytest.mark.usefixtures("patient")
def test_our_own_pages_are_known_whatever_they_answer(page: str) -> None:
    with netns() as namespace:
        assert namespace.call(lambda: asyncio.run(beside_our_own_pages({page: lambda: (200, TEXT, b"ok")}))) == ""


def test_what_is_asked() -> None:
    usual = Pages((Listen("127.0.0.1", 10256), Listen("::1", 10256)), (Listen("127.0.0.1", 10249),))
    assert pages_of("", "") == pages_of(HEALTH, METRICS) == pages_of("[::]:10256", "unix:/run/x.sock") == usual
    assert pages_of("[::]:1", "[::1]:2").health[:2] == (Listen("127.0.0.1", 1), Listen("::1", 1))
    assert pages_of("[::]:1", "[::1]:2").metrics == (Listen("::1", 2), *usual.metrics)
