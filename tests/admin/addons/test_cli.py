"""``podgate addon reconcile`` as a command: words, exit codes, and its end."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from podgate.admin.addons.cli import main
from podgate.commandline.usage import UsageError
from podgate.joints import SourceError
from tests.support.asynchronous import in_loop
from tests.support.fake_addons import KINDS, manifest
from tests.support.fake_apiserver import FakeApiServer
from tests.support.kubeconfigs import kubeconfig
from tests.support.poll import poll_async


def folder(tmp_path: Path, *objects: dict[str, Any]) -> Path:
    path = tmp_path / "set"
    path.mkdir(exist_ok=True)
    (path / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return path


async def command(*words: str | Path) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    verb = ("-m", "podgate.cli", "addon", "reconcile")
    return await asyncio.create_subprocess_exec(sys.executable, *verb, *map(str, words), stdout=pipe, stderr=pipe)


async def podgate(*words: str | Path) -> tuple[int, str, str]:
    process = await command(*words)
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "VERB"),
        (["reconcil", "."], 'did you mean "reconcile"?'),
        (["reconcile"], "DIR"),
        (["reconcile", "/nonexistent"], "there is no such folder"),
        (["reconcile", ".", "--name", "A B"], "'A B'"),
        (["reconcile", ".", "--interval", "0"], "--interval 0: at least 1"),
        (["reconcile", ".", "--timeout", "nan"], "--timeout nan: at least 1"),
        (["reconcile", ".", "--wait"], "give --once too"),
        (["reconcile", ".", "--once", "--dry-run"], "give one"),
        (["reconcile", ".", "--mode", "Reconcil"], 'did you mean "Reconcile"?'),
    ],
)
def test_wrong_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="podgate addon") as raised:
        main(words, {}, print)
    assert message in str(raised.value)


def test_without_an_api_it_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="give --kubeconfig FILE"):
        main(["reconcile", str(folder(tmp_path))], {"PODGATE_SOURCE": "/x"}, print)


@in_loop
async def test_a_plan_then_once_then_no_difference(tmp_path: Path) -> None:
    async with FakeApiServer(*KINDS).serving() as server:
        words = (folder(tmp_path, manifest("ConfigMap", "a")), "--kubeconfig", kubeconfig(tmp_path, server.url))
        assert await podgate(*words, "--dry-run") == (1, "create ConfigMap/kube-system/a\n", "")
        code, out, _ = await podgate(*words, "--once", "--output", "json")
        assert (code, json.loads(out)["done"]) == (0, True)
        assert await podgate(*words, "--dry-run") == (0, "no difference\n", "")
        folder(tmp_path)
        code, out, _ = await podgate(*words, "--dry-run")
        assert (code, "--allow-empty" in out, "\nremove " in out) == (1, True, False)
        assert (await podgate(*words, "--once", "--allow-empty"))[0] == 0
        assert server.objects.of("configmaps").objects == {}


@in_loop
async def test_without_a_mode_nothing_goes_that_stands_in_the_folder_without_a_label(tmp_path: Path) -> None:
    bare = manifest("ConfigMap", "a")
    del bare["metadata"]["labels"], bare["metadata"]["namespace"]  # it goes to the login's own namespace
    workload = manifest("DaemonSet", "w", spec={"selector": {}, "template": {}})
    del workload["metadata"]["labels"]
    async with FakeApiServer(*KINDS).serving() as server:
        path = folder(tmp_path, bare, workload, manifest("ConfigMap", "b"))
        words = (path, "--kubeconfig", kubeconfig(tmp_path, server.url))
        assert (await podgate(*words, "--once", "--mode", "Reconcile"))[0] == 0
        folder(tmp_path, bare, workload, manifest("ConfigMap", "c"))
        code, out, said = await podgate(*words, "--once")
        assert (code, out, "DaemonSet w has no label" in said) == (0, "done\n", True)
        assert set(server.objects.of("configmaps").objects) == {("default", "a"), ("kube-system", "c")}
        assert set(server.objects.of("daemonsets").objects) == {("kube-system", "w")}


@in_loop
async def test_what_is_waited_for_is_told_beside_the_answer(tmp_path: Path) -> None:
    async with FakeApiServer(*KINDS).serving() as server:
        workload = manifest("DaemonSet", "w", spec={"selector": {}, "template": {}})
        words = (folder(tmp_path, workload), "--kubeconfig", kubeconfig(tmp_path, server.url))
        code, out, err = await podgate(*words, "--once", "--wait", "--timeout", "6", "--output", "json")
        assert (code, json.loads(out)["unready"]) == (1, ["DaemonSet/kube-system/w"])
        (told,) = (json.loads(line) for line in err.splitlines() if '"waiting"' in line)
        assert (told["object"], told["ready"]) == ("DaemonSet/kube-system/w", "nobody has counted its Pods yet")
        assert "\x1b" not in out + err


@in_loop
async def test_an_api_that_is_not_there_is_exit_3(tmp_path: Path) -> None:
    words = (folder(tmp_path), "--kubeconfig", kubeconfig(tmp_path, "http://127.0.0.1:1"), "--timeout", "1", "--once")
    code, out, _ = await podgate(*words)
    assert (code, "did not let us in within 1 s" in out) == (3, True)


@in_loop
async def test_it_keeps_running_until_it_is_told_to_end(tmp_path: Path) -> None:
    async with FakeApiServer(*KINDS).serving() as server:
        path = folder(tmp_path, manifest("ConfigMap", "a"))
        process = await command(path, "--kubeconfig", kubeconfig(tmp_path, server.url), "--interval", "1")
        objects = server.objects.of("configmaps").objects
        await poll_async(lambda: ("kube-system", "a") in objects)
        server.remove("configmaps", "a", "kube-system")
        await poll_async(lambda: ("kube-system", "a") in objects)
        process.send_signal(signal.SIGTERM)
        out, _ = await process.communicate()
        assert (process.returncode, out) == (0, b"stopped; the add-ons stay as they are\n")
        assert ("kube-system", "a") in objects
