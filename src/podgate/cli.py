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
from typing import Any, Final, TypeVar

from podgate import __version__
from podgate.joints import Answered, SourceError
from podgate.model.frozen import Frozen
from podgate.model.options import OptionSpec, SettingsError, did_you_mean, options_of, settings_from
from podgate.model.usage import Parser, UsageError, add_option, complaint, given, wants_json
from podgate.observe.showing import show, tell

AdministratorVerb = Callable[[Sequence[str], Mapping[str, str], Callable[[str], None]], Answered]
"""Words, environment and what takes progress to an answer. Raises UsageError, SourceError."""

SettingsT = TypeVar("SettingsT", bound=Frozen)

FEATURES: Final = {
    "masquerade": ("podgate.features.masquerade.feature", "decides which Pod traffic leaves with the node's address"),
    "metadata": ("podgate.features.metadata.feature", "keeps the node's credentials out of Pods' reach"),
    "services": ("podgate.features.services.feature", "leads connections to Services to their endpoints"),
}
"""Feature name to the module that declares it, and its summary (so that --help imports none of them)."""

SERVERS: Final = {
    "metadata": ("podgate.features.metadata.server.running", "SERVER"),
}
"""Features whose ``run`` is a process that must stay small: what declares it, with nothing that other verbs need."""

LOADING: Final = 20_000
"""Objects that are made between two looks for garbage while modules are loaded; usually it is 700."""

BESIDE: Final = {
    ("metadata", "watch"): "podgate.features.metadata.watcher.feature",
    ("metadata", "untaint"): "podgate.features.metadata.untaint.feature",
}
"""Agents beside a feature's own: feature and verb to the module that declares it, and its summary."""

VERBS: Final = {
    "run": "keep this node as the configuration says, until stopped",
    "render": "print the desired state, from files, without privileges",
    "plan": "print the difference to the live system: exit 0 none, 1 some, 2 error",
    "explain": "say what happens to {asked}, and which entry decides it",
    "check": "look for mistakes in the configuration and competing rules: exit 1 on findings",
    "clean": "remove everything that is ours; does nothing the second time",
}
"""The verbs of every feature, and their summaries; ``{asked}`` is what its questions are about."""

ASKED: Final = {"masquerade": "an address", "metadata": "a request", "services": "a connection"}

ALONE: Final = {
    "metadata": {
        "doctor": "say what is right and wrong with the proxy of this node",
        "watch": "follow Pods and MetadataPolicies for the proxy of this node",
        "untaint": "take the start-up taint away from Nodes whose proxy is ready",
        "kube-up": "do what the cluster scripts of kube-up did for metadata-proxy",
    },
}
"""Verbs that one feature alone has, with parsers of their own, and their summaries."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; give the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _main(words)
    except UsageError as error:
        return _fail(str(error), words)


def _fail(message: str, words: Sequence[str]) -> int:
    """Say what was wrong, in the form that the words ask for."""
    said = complaint([message], as_json=wants_json(words))
    sys.stdout.write(said.out)
    sys.stderr.write(said.err)
    return 2


def _main(words: Sequence[str]) -> int:
    if words[:1] == ["lab"]:
        # The lab has its own table of verbs, and passes on whatever follows "--".
        from podgate.lab import cli as lab  # noqa: PLC0415 - an agent never loads the lab

        return lab.main(words[1:])
    if words[:1] == ["addon"]:
        from podgate.admin.addons import cli as addons  # noqa: PLC0415 - no agent loads it

        return _administer(addons.main, words[1:])
    if words[:1] == ["doctor"]:
        from podgate.admin.doctor import cli as doctor  # noqa: PLC0415 - no agent loads it

        modules = {name: module for name, (module, _) in FEATURES.items()}
        return _administer(
            lambda given, environ, tell: doctor.main(given, environ, modules, tuple(SERVERS), tell), words[1:]
        )
    if words[:3] == ["metadata", "kube-up", "migrate-labels"]:
        from podgate.admin import relabelling  # noqa: PLC0415 - no agent loads it

        return _administer(relabelling.main, words[3:])
    if words[:2] == ["metadata", "kube-up"]:
        return _kube_up(words[2:])
    if words[:2] == ["metadata", "doctor"]:
        return _doctor(words[2:])
    if tuple(words[:2]) in BESIDE:
        return _run_beside(words[0], words[1], words[2:])
    if len(words) > 1 and words[1] == "run" and words[0] in SERVERS and not {"-h", "--help"} & set(words):
        return _serve(words[0], words[2:])
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

    feature = importlib.import_module(FEATURES[chosen][0]).FEATURE
    try:
        values = feature.configured(given(arguments, options_of(feature.settings)), tell)
        if arguments.verb != "run":
            values = _with_kubeconfig(f"podgate {chosen} {arguments.verb}", values)
        settings = settings_from(feature.settings, values)
    except SettingsError as error:
        raise UsageError("\n".join(f"podgate {chosen} {arguments.verb}: {each}" for each in error.problems)) from error
    return verbs.perform(arguments.verb, feature, settings, arguments, os.environ)


def _administer(verb: AdministratorVerb, words: Sequence[str]) -> int:
    """Do what an administrator asks of a cluster."""
    try:
        answered = verb(words, os.environ, tell)
    except SourceError as error:
        return _fail(str(error), words)
    show(json.dumps(answered.data, indent=2) if wants_json(words) else answered.text)
    return answered.code


def _serve(name: str, words: Sequence[str]) -> int:
    """Run a feature that serves connections itself; only what it needs is loaded."""
    # What is loaded stays: looking for garbage among it took a tenth of the start.
    gc.set_threshold(LOADING)
    from podgate import servers  # noqa: PLC0415 - as verbs above

    module, attribute = SERVERS[name]
    server: servers.Server = getattr(importlib.import_module(module), attribute)
    specs = [spec for spec in options_of(server.settings) if not spec.verbs or "run" in spec.verbs]
    parser = Parser(prog=f"podgate {name} run", allow_abbrev=False)
    return servers.run(server, _settings(parser, server.settings, specs, words)[0], os.environ)


def _settings(
    parser: argparse.ArgumentParser,
    cls: type[SettingsT],
    specs: Sequence[OptionSpec],
    words: Sequence[str],
    complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda values: values,
) -> tuple[SettingsT, argparse.Namespace]:
    """Read settings off words, which ``complete`` may add to. Raises UsageError."""
    for spec in specs:
        add_option(parser, spec)
    arguments, unknown = parser.parse_known_args(words)
    _, feature, verb = parser.prog.split()
    if unknown:
        raise _unknown(feature, verb, unknown, specs)
    try:
        return settings_from(cls, complete(given(arguments, specs))), arguments
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
    from podgate.features.metadata.server import doctor  # noqa: PLC0415 - as verbs above
    from podgate.features.metadata.settings import Settings  # noqa: PLC0415 - as verbs above
    from podgate.sources.origin import looked_at, unasked  # noqa: PLC0415 - as verbs above

    specs = [spec for spec in options_of(Settings) if spec.name in doctor.ASKS]
    parser = Parser(
        prog="podgate metadata doctor", description=doctor.SUMMARY, allow_abbrev=False, guided="metadata doctor"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="for people or for programs")
    settings, arguments = _settings(parser, Settings, specs, words, partial(_with_kubeconfig, parser.prog))
    try:
        found = looked_at(settings.source, settings.kubeconfig, settings.context, os.environ)
        if said := unasked(found, settings.source, settings.kubeconfig):
            tell(f"{parser.prog}: {said}")
        text, code = doctor.answer(doctor.examine(settings, os.environ), as_json=arguments.output == "json")
    except SourceError as error:
        return _fail(f"{parser.prog}: {error}", words)
    print(text)
    return code


def _run_beside(feature: str, verb: str, words: Sequence[str]) -> int:
    """Run an agent of a feature that is not the feature's own ``run``, and that one feature alone has."""
    from podgate import verbs  # noqa: PLC0415 - as above

    module = importlib.import_module(BESIDE[feature, verb])
    agent: verbs.AnyAgent = module.FEATURE
    parser = Parser(
        prog=f"podgate {feature} {verb}", description=module.SUMMARY, allow_abbrev=False, guided=f"{feature} {verb}"
    )
    settings, _ = _settings(parser, agent.settings, options_of(agent.settings), words)
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
    guesses = ((word, did_you_mean(word.partition("=")[0], flags) if word.startswith("-") else "") for word in unknown)
    return UsageError(
        "\n".join(
            [*(f"{prog}: {word} means nothing here{guess}" for word, guess in guesses), f"{prog}: --help says more"]
        )
    )


def _options(feature: str, verb: str) -> list[OptionSpec]:
    specs = options_of(importlib.import_module(FEATURES[feature][0]).FEATURE.settings)
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
    for name, (module, summary) in FEATURES.items():
        feature_parser = features.add_parser(name, help=summary, description=f"podgate {name} {summary}.", guided=name)
        if name == chosen:
            _add_verbs(feature_parser, importlib.import_module(module).FEATURE)
    features.add_parser("addon", help="keep a cluster's add-ons as the manifests of a folder say", add_help=False)
    features.add_parser("doctor", help="say what is right and wrong with a cluster, a verdict per line", add_help=False)
    features.add_parser("lab", help="a cluster in a box, from ordinary manifests, on this machine", add_help=False)
    return parser, chosen if chosen in FEATURES else None


def _add_verbs(parser: argparse.ArgumentParser, feature: Any) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True, parser_class=Parser)
    for verb, template in VERBS.items():
        summary = template.format(asked=ASKED[feature.name])
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
    for verb, summary in ALONE.get(feature.name, {}).items():
        verbs.add_parser(verb, help=summary, add_help=False)


if __name__ == "__main__":
    sys.exit(main())
