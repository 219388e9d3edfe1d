"""The command line of the lab: ``podgate lab VERB …``.

Here: arguments, progress, printing, exit codes. Not here: what the verbs do (lab/client.py, lab/verbs.py).
Invariant: exit 0 it was done, 1 it was not (no such lab or object, not ready in time), 2 wrong usage or bad manifests;
``exec`` gives the command's own exit code.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final

from podgate.commandline.usage import Parser, UsageError, wants_json
from podgate.lab.messages import LabError
from podgate.lab.places import DEFAULT_BASE, DEFAULT_NAME, places
from podgate.observe.showing import complain

_POD_NAMESPACE: Final = "the Pod's namespace, where TARGET names none (default: default)"
_WHERE: Final = "a Pod as [NAMESPACE/]NAME, or node/NAME, or host/NAME"


_DESCRIPTION: Final = """\
A cluster in a box: manifests become processes and network namespaces on this machine. Nothing in it reaches the
machine's own network, and nothing of the machine is written, but for the lab's state directory."""

_EPILOG: Final = f"""\
example:
  podgate lab up examples/masquerade
  podgate lab exec web -- curl -s http://10.70.0.2/
  podgate lab exec node/node-1 -- nft list ruleset
  podgate lab logs host/partner
  podgate lab down

Images are not pulled: the name's last part decides. podgate, ip-masq-agent and the like run this checkout; any other
image runs its command from this machine, or without a command an echo server.
State lies in $PODGATE_LAB_DIR (default {DEFAULT_BASE}), one folder per lab.

exit codes:
  0  done
  1  not done: no such lab or object, or not ready in time
  2  wrong use, or a manifest with an error; exec gives the command's own code

documentation: docs/guide/lab.md"""


_FUNCTIONS: Final = {"exec": "execute", "list": "labs"}
"""The verbs whose names are Python's own."""

_EXEC: Final = """\
podgate lab exec: write "--" between the target and the command, as: podgate lab exec web -- ls -l
podgate lab exec: --help says more"""


def _fill(parser: argparse.ArgumentParser) -> None:
    """Give a parser the lab's verbs."""
    chosen = parser.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=Parser)

    def verb(name: str, module: str, summary: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = chosen.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False
        )
        added.add_argument("--name", default=DEFAULT_NAME, help="which lab (default: lab); several run side by side")
        added.set_defaults(module=module, verb=name)
        return added

    up = verb("up", "objectverbs", "start a lab from manifests, and return when everything in it is ready")
    up.add_argument("paths", nargs="*", metavar="PATH", help="files and folders of manifests; none: an empty lab")
    up.add_argument("--foreground", action="store_true", help="stay; the lab ends with this process")
    up.add_argument("--limits", action="store_true", help="enforce resources.limits of cpu and memory, by cgroups")
    up.add_argument("--kubeconfig", metavar="F", help="join a cluster: the lab runs the Pods of its API server")
    up.add_argument("--context", default="", help="which context of the kubeconfig (default: its current one)")
    _add_timeout(up)
    down = verb("down", "verbs", "end a lab and remove what it kept")
    down.add_argument("--grace", type=float, default=2.0, metavar="S", help="seconds for Pods to end (default: 2)")
    _add_output(verb("status", "verbs", "show nodes, hosts and Pods, and what is not ready"))
    listed = chosen.add_parser(
        "list", help="show which labs run", description="Show which labs run.", allow_abbrev=False
    )
    listed.set_defaults(module="verbs", verb="list", name=DEFAULT_NAME)
    _add_output(listed)
    apply = verb("apply", "objectverbs", "create or change objects from manifests")
    apply.add_argument("-f", "--filename", action="append", required=True, dest="paths", metavar="PATH")
    apply.add_argument("--wait", action="store_true", help="return when everything is ready")
    _add_timeout(apply)
    get = verb("get", "objectverbs", "show objects")
    get.add_argument("kind", metavar="KIND[/NAME]", help="as Pod, pods, po, configmap, daemonsets.apps, svc/web")
    get.add_argument("object", metavar="NAME", nargs="?")
    _add_namespace(get)
    _add_output(get)
    delete = verb("delete", "objectverbs", "delete objects, and return when they are gone")
    delete.add_argument("objects", metavar="KIND/NAME", nargs="+")
    delete.add_argument("--no-wait", action="store_true", help="return at once")
    _add_namespace(delete)
    execute = verb("exec", "verbs", "run a command in a Pod, on a node or on a host")
    execute.add_argument("target", metavar="TARGET", help=_WHERE)
    execute.add_argument("-c", "--container", default="", help="which container (default: the first)")
    execute.add_argument("-n", "--namespace", default="default", help=_POD_NAMESPACE)
    execute.add_argument("words", nargs="+", metavar="-- COMMAND", help="the command and its arguments")
    logs = verb("logs", "verbs", "print what a container wrote, all its restarts in one")
    logs.add_argument("target", metavar="TARGET", help="a Pod as [NAMESPACE/]NAME, or host/NAME")
    logs.add_argument("-c", "--container", default="", help="which container (default: the first)")
    logs.add_argument("-n", "--namespace", default="default", help=_POD_NAMESPACE)
    logs.add_argument("-f", "--follow", action="store_true", help="go on as more is written")
    logs.add_argument("--tail", type=int, metavar="N", help="the last N lines only")
    forward = verb("forward", "verbs", "make a port of the lab reachable on this machine, until interrupted")
    forward.add_argument("near", metavar="127.0.0.1:PORT", help="where to listen; port 0 picks one")
    forward.add_argument("far", metavar="TARGET:PORT", help=f"{_WHERE}, or an address of the lab")


def _add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds to wait (default: 60)")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", "-o", choices=("text", "json"), default="text", help="for people or for programs")


def _add_namespace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--namespace", help="the namespace (default: default; for lists: all)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb of the lab; give the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _main(words)
    except UsageError as error:
        without = words[:1] == ["exec"] and "--" not in words and not {"-h", "--help"} & set(words)
        return _fail(_EXEC if without else str(error), words, 2)
    except LabError as error:
        return _fail(f"podgate lab: {error}", words, error.code)


def _fail(message: str, words: Sequence[str], code: int) -> int:
    """Say what was wrong, in the form that the words ask for."""
    complain(message, as_json=wants_json(words))
    return code


def _main(words: Sequence[str]) -> int:
    parser = Parser(
        prog="podgate lab", description=_DESCRIPTION, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    _fill(parser)
    arguments = parser.parse_args(words)
    try:
        arguments.places = places(arguments.name)
    except ValueError as error:
        parser.error(str(error))
    # Most verbs need neither YAML nor the store; they are what people and tests call most often.
    module = importlib.import_module(f"podgate.lab.{arguments.module}")
    try:
        result: int = getattr(module, _FUNCTIONS.get(arguments.verb, arguments.verb))(arguments)
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130
    return result


if __name__ == "__main__":
    sys.exit(main())
