"""The command line: ``podgate FEATURE VERB …``, ``podgate lab …`` and what an administrator asks (admin/).

Here: the table of features, the parsers read off their settings, exit codes. Not here: what the verbs do (verbs.py).
Invariant: a feature's modules are imported only inside its own subcommand, so an agent loads what it runs and no more.

Exit codes: 0 done; 1 not done, or findings; 2 wrong usage or bad input; for ``plan`` 0 no difference, 1 some, 2 error.
"""

import argparse
import gc
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from podgate import __version__
from podgate.commandline.options import OptionSpec, SettingsError, options_of, settings_from
from podgate.commandline.usage import Parser, UsageError, add_option, given, wants_json
from podgate.joints import Answered, SourceError
from podgate.model.frozen import Frozen
from podgate.model.spelling import did_you_mean
from podgate.observe.showing import complain, show, tell

AdministratorVerb = Callable[[Sequence[str], Mapping[str, str], Callable[[str], None]], Answered]
"""Words, environment and what takes progress to an answer. Raises UsageError, SourceError."""

SettingsT = TypeVar("SettingsT", bound=Frozen)

LOADING: Final = 20_000
"""Objects that are made between two looks for garbage while modules are loaded; usually it is 700."""


class Alone(NamedTuple):
    """A verb that one feature alone has: its summary, and the module that declares the agent that it runs, if any."""

    summary: str
    agent: str = ""


class FeatureEntry(NamedTuple):
    """What the command line knows of a feature before it imports it; features/NAME/feature.py declares the rest.

    Attributes:
        summary: what the feature does.
        asked: what its questions are about.
        server: the module that declares its ``run``, where that must stay small: it needs nothing of other verbs.
        alone: the verbs that it alone has, with parsers of their own.
    """

    summary: str
    asked: str
    server: str = ""
    alone: Mapping[str, Alone] = {}


FEATURES: Final = {
    "masquerade": FeatureEntry("decides which Pod traffic leaves with the node's address", "an address"),
    "metadata": FeatureEntry(
        "keeps the node's credentials out of Pods' reach",
        "a request",
        server="podgate.features.metadata.server.running",
        alone={
            "doctor": Alone("say what is right and wrong with the proxy of this node"),
            "watch": Alone(
                "follow Pods and MetadataPolicies for the proxy of this node",
                "podgate.features.metadata.watcher.feature",
            ),
            "untaint": Alone(
                "take the start-up taint away from Nodes whose proxy is ready",
                "podgate.features.metadata.untaint.feature",
            ),
            "kube-up": Alone("do what the cluster scripts of kube-up did for metadata-proxy"),
        },
    ),
    "services": FeatureEntry("leads connections to Services to their endpoints", "a connection"),
}

VERBS: Final = {
    "run": "keep this node as the configuration says, until stopped",
    "render": "print the desired state, from files, without privileges",
    "plan": "print the difference to the live system: exit 0 none, 1 some, 2 error",
    "explain": "say what happens to {asked}, and which entry decides it",
    "check": "look for mistakes in the configuration and competing rules: exit 1 on findings",
    "clean": "remove everything that is ours; does nothing the second time",
}
"""The verbs of every feature, and their summaries; ``{asked}`` is what its questions are about."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; give the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _main(words)
    except UsageError as error:
        return _fail(str(error), words)


def _fail(message: str, words: Sequence[str]) -> int:
    """Say what was wrong, in the form that the words ask for."""
    complain(message, as_json=wants_json(words))
    return 2


def _main(words: Sequence[str]) -> int:
    match words:
        case ["lab", *rest]:
            # The lab has its own table of verbs, and passes on whatever follows "--".
            from podgate.lab import cli as lab  # noqa: PLC0415 - an agent never loads the lab

            return lab.main(rest)
        case ["addon", *rest]:
            from podgate.admin.addons import cli as addons  # noqa: PLC0415 - no agent loads it

            return _administer(addons.main, rest)
        case ["doctor", *rest]:
            from podgate.admin.doctor import cli as doctor  # noqa: PLC0415 - no agent loads it

            modules = {name: _module(name) for name in FEATURES}
            servers = tuple(name for name, entry in FEATURES.items() if entry.server)
            return _administer(lambda given, environ, tell: doctor.main(given, environ, modules, servers, tell), rest)
        case ["metadata", "kube-up", "migrate-labels", *rest]:
            from podgate.admin import relabelling  # noqa: PLC0415 - no agent loads it

            return _administer(relabelling.main, rest)
        case ["metadata", "kube-up", *rest]:
            return _kube_up(rest)
        case ["metadata", "doctor", *rest]:
            return _doctor(rest)
        case [name, verb, *rest] if name in FEATURES:
            entry = FEATURES[name]
            if (alone := entry.alone.get(verb)) and alone.agent:
                return _run_beside(f"{name} {verb}", alone.agent, rest)
            if verb == "run" and entry.server and not {"-h", "--help"} & set(words):
                return _serve(name, entry.server, rest)
    return _perform(words)


def _perform(words: Sequence[str]) -> int:
    """Do a verb of the table with a feature, or say which there are."""
    parser, chosen = _parser(words)
    arguments, unknown = parser.parse_known_args(words)
    if chosen is None:
        if unknown:
            parser.error(f"{unknown[0]} means nothing here")
        parser.print_help()
        return 2
    if unknown or arguments.verb not in VERBS:
        raise _unknown(chosen, arguments.verb, unknown, _options(chosen, arguments.verb))
    from podgate import verbs  # noqa: PLC0415 - "podgate --help" needs none of it

    feature = importlib.import_module(_module(chosen)).FEATURE
    try:
        # What the others say beside their answer is a part of what check answers.
        say = _nothing if arguments.verb == "check" else tell
        values = feature.configured(given(arguments, options_of(feature.settings)), say)
        if arguments.verb != "run":
            values = _with_kubeconfig(f"podgate {chosen} {arguments.verb}", values)
        settings = settings_from(feature.settings, values)
    except SettingsError as error:
        raise UsageError("\n".join(f"podgate {chosen} {arguments.verb}: {each}" for each in error.problems)) from error
    return verbs.perform(arguments.verb, feature, settings, arguments, os.environ)


def _nothing(said: str) -> None:
    """Say nothing."""


def _module(feature: str) -> str:
    return f"podgate.features.{feature}.feature"


def _administer(verb: AdministratorVerb, words: Sequence[str]) -> int:
    """Do what an administrator asks of a cluster."""
    try:
        return _answer(verb(words, os.environ, tell), words)
    except SourceError as error:
        raise UsageError(str(error)) from error


def _answer(answered: Answered, words: Sequence[str]) -> int:
    """Give an answer in the form that the words ask for, and the exit code."""
    show(json.dumps(answered.data, indent=2) if wants_json(words) else answered.text)
    return answered.code


def _serve(feature: str, module: str, words: Sequence[str]) -> int:
    """Run a feature that serves connections itself; only what it needs is loaded."""
    # What is loaded stays: looking for garbage among it took a tenth of the start.
    gc.set_threshold(LOADING)
    from podgate import servers  # noqa: PLC0415 - as verbs above

    server: servers.Server = importlib.import_module(module).SERVER
    specs = [spec for spec in options_of(server.settings) if not spec.verbs or "run" in spec.verbs]
    parser = Parser(prog=f"podgate {feature} run", allow_abbrev=False)
    return servers.run(server, _settings(parser, server.settings, specs, words), os.environ)


def _settings(
    parser: argparse.ArgumentParser,
    cls: type[SettingsT],
    specs: Sequence[OptionSpec],
    words: Sequence[str],
    complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda values: values,
) -> SettingsT:
    """Read settings off words, which ``complete`` may add to. Raises UsageError."""
    for spec in specs:
        add_option(parser, spec)
    arguments, unknown = parser.parse_known_args(words)
    _, feature, verb = parser.prog.split()
    if unknown:
        raise _unknown(feature, verb, unknown, specs)
    try:
        return settings_from(cls, complete(given(arguments, specs)))
    except SettingsError as error:
        raise UsageError("\n".join(f"{parser.prog}: {problem}" for problem in error.problems)) from error


def _with_kubeconfig(prog: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take a context that stands alone for one of $KUBECONFIG, as kubectl does, and say so; agents read none."""
    from podgate.sources.origin import Api, kubeconfig_in, unasked  # noqa: PLC0415 - as verbs above

    context = values.get("context")
    if not context or values.get("kubeconfig") is not None or values.get("source") is not None:
        return values
    try:
        file = kubeconfig_in(os.environ)
    except SourceError as error:
        raise UsageError(f"{prog}: {error}") from error
    if file is None:
        return values
    tell(f"{prog}: {unasked(Api(file, context), None, None)}")
    return {**values, "kubeconfig": file}


def _doctor(words: Sequence[str]) -> int:
    """Look at the metadata proxy of this node: a verb that one feature alone has; exit 1 when something is wrong."""
    from podgate.commandline.findings import answered  # noqa: PLC0415 - as verbs above
    from podgate.features.metadata.server import doctor  # noqa: PLC0415 - as verbs above
    from podgate.features.metadata.settings import Settings  # noqa: PLC0415 - as verbs above
    from podgate.sources.origin import looked_at, unasked  # noqa: PLC0415 - as verbs above

    specs = [spec for spec in options_of(Settings) if spec.name in doctor.ASKS]
    parser = Parser(
        prog="podgate metadata doctor", description=doctor.SUMMARY, allow_abbrev=False, guided="metadata doctor"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="for people or for programs")
    settings = _settings(parser, Settings, specs, words, partial(_with_kubeconfig, parser.prog))
    try:
        found = looked_at(settings.source, settings.kubeconfig, settings.context, os.environ)
        if said := unasked(found, settings.source, settings.kubeconfig):
            tell(f"{parser.prog}: {said}")
        return _answer(answered(doctor.examine(settings, os.environ)), words)
    except SourceError as error:
        raise UsageError(f"{parser.prog}: {error}") from error


def _run_beside(name: str, module: str, words: Sequence[str]) -> int:
    """Run an agent of a feature that is not the feature's own ``run``, and that one feature alone has."""
    from podgate import verbs  # noqa: PLC0415 - as above

    declared = importlib.import_module(module)
    agent: verbs.AnyAgent = declared.FEATURE
    parser = Parser(prog=f"podgate {name}", description=declared.SUMMARY, allow_abbrev=False, guided=name)
    settings = _settings(parser, agent.settings, options_of(agent.settings), words)
    return verbs.run(parser.prog, agent, settings, os.environ)


def _kube_up(words: Sequence[str]) -> int:
    """Do what the cluster scripts did for metadata-proxy: a verb that one feature alone has."""
    from podgate.features.metadata import kube_up  # noqa: PLC0415 - as verbs above

    said = kube_up.answer(words, os.environ, sys.stdin.read)
    sys.stdout.write(said.out)
    sys.stderr.write(said.complaint)
    return said.code


def _unknown(feature: str, verb: str, unknown: Sequence[str], specs: Sequence[OptionSpec]) -> UsageError:
    """Say which words mean nothing to a verb, and what was probably meant."""
    flags = [spec.flag for spec in specs]
    prog = f"podgate {feature} {verb}"
    # What follows a flag that there is not is its value, most often.
    takes = [False, *(word[:1] == "-" and "=" not in word for word in unknown)]
    strange = [word for word, is_value in zip(unknown, takes, strict=False) if word[:1] == "-" or not is_value]
    guesses = ((word, did_you_mean(word.partition("=")[0], flags) if word.startswith("-") else "") for word in strange)
    return UsageError(
        "\n".join(
            [*(f"{prog}: {word} means nothing here{guess}" for word, guess in guesses), f"{prog}: --help says more"]
        )
    )


def _options(feature: str, verb: str) -> list[OptionSpec]:
    specs = options_of(importlib.import_module(_module(feature)).FEATURE.settings)
    return [spec for spec in specs if not spec.verbs or verb in spec.verbs]


def _parser(words: Sequence[str]) -> tuple[argparse.ArgumentParser, str | None]:
    """Give the parser, filled in for the feature that the words name, and that feature."""
    parser = Parser(
        prog="podgate",
        description="Every proxy that a Kubernetes Pod meets. Objects come from an API, manifests or a lab.",
        epilog="podgate FEATURE --help and podgate FEATURE VERB --help say more, with examples and exit codes.\n"
        "documentation: README.md, docs/guide, docs/guide/exit-codes.md",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"podgate {__version__}")
    features = parser.add_subparsers(title="features", metavar="FEATURE", dest="feature", parser_class=Parser)
    chosen = next((word for word in words if not word.startswith("-")), None)
    for name, entry in FEATURES.items():
        feature_parser = features.add_parser(
            name, help=entry.summary, description=f"podgate {name} {entry.summary}.", guided=name
        )
        if name == chosen:
            _add_verbs(feature_parser, importlib.import_module(_module(name)).FEATURE)
    features.add_parser("addon", help="keep a cluster's add-ons as the manifests of a folder say", add_help=False)
    features.add_parser("doctor", help="say what is right and wrong with a cluster, a verdict per line", add_help=False)
    features.add_parser("lab", help="a cluster in a box, from ordinary manifests, on this machine", add_help=False)
    return parser, chosen if chosen in FEATURES else None


def _add_verbs(parser: argparse.ArgumentParser, feature: Any) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True, parser_class=Parser)
    for verb, template in VERBS.items():
        summary = template.format(asked=FEATURES[feature.name].asked)
        verb_parser = verbs.add_parser(
            verb,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            allow_abbrev=False,
            guided=f"{feature.name} {verb}",
        )
        if verb == "explain":
            feature.add_questions(verb_parser)
        for spec in _options(feature.name, verb):
            add_option(verb_parser, spec)
        if verb != "run":
            verb_parser.add_argument(
                "--output", choices=("text", "json"), default="text", help="for people or for programs (default: text)"
            )
    for verb, alone in FEATURES[feature.name].alone.items():
        verbs.add_parser(verb, help=alone.summary, add_help=False)


if __name__ == "__main__":
    sys.exit(main())
