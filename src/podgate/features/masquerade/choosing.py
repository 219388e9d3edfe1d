"""choosing: which texts are the configuration of this node.

Here: the order of file, directory and ConfigMap, and what stands in for a configuration that cannot be had at all.
Not here: what the texts say (reading.py), the last good configuration (compile.py).
Invariant: a text that should be there and cannot be read makes the choice ``bad``, never an absent configuration.
"""

from collections.abc import Mapping
from typing import Final

from podgate.features.masquerade.intent import InForce
from podgate.features.masquerade.reading import Text
from podgate.features.masquerade.settings import Settings
from podgate.joints import Inputs
from podgate.model.documents import field_path
from podgate.model.files import Directory, FileContent, FileWatch, Missing, Present, Unreadable
from podgate.model.frozen import Frozen, ObjectRef, file_ref
from podgate.model.kinds.config import CONFIG_MAP, ConfigMap
from podgate.model.problems import Problem

CONFIG_MAP_REF: Final = ObjectRef(kind="ConfigMap", name="ip-masq-agent", namespace="kube-system")
PREFIX: Final = "ip-masq"
"""Files of a directory, and keys of a ConfigMap, that Azure's agent merges begin so."""


class ConfigTexts(Frozen, frozen=True):
    """The texts of the configuration.

    Attributes:
        texts: one, or several to merge; none for the built-in list.
        in_force: where they are from, if they turn out to be good.
        problems: what is wrong with the places, not with the texts.
        bad: there is a configuration, and it cannot be had.
    """

    texts: tuple[Text, ...] = ()
    in_force: InForce = "default"
    problems: tuple[Problem, ...] = ()

    @property
    def bad(self) -> bool:
        """Whether there is a configuration that cannot be had."""
        return any(problem.severity == "error" for problem in self.problems)


def file_watch(settings: Settings) -> FileWatch:
    """Give what must be watched for the configuration."""
    return FileWatch(settings.config_path, PREFIX + "*")


def choose(settings: Settings, inputs: Inputs) -> ConfigTexts:
    """Choose: the file or directory of ``--config`` or the default path; without ``--config`` also the ConfigMap."""
    path = settings.config_path
    content = inputs.files.get(path, Missing())
    if isinstance(content, Present):
        return ConfigTexts((Text(file_ref(path), content.data),), "file")
    if isinstance(content, Directory):
        return _directory(path, content, inputs.files)
    if isinstance(content, Unreadable):
        return ConfigTexts((), "file", (_unreadable(path, content),))
    if settings.config is None and not content.dangling:
        return _config_map(inputs)
    what = "a link that leads nowhere" if content.dangling else "no such file"
    fix = "correct the link" if content.dangling else "make the file, or correct --config"
    return ConfigTexts((), "default", (_place(path, f"{what}: the built-in list is in force; {fix}"),))


def _place(path: str, message: str) -> Problem:
    return Problem(file_ref(path), "warning", "NotFound", "", message)


def _unreadable(path: str, content: FileContent) -> Problem:
    if isinstance(content, Unreadable):
        message = f"cannot be read ({content.why}): make it readable for podgate"
    elif isinstance(content, Directory):
        message = "is a directory, where a file must be: remove or rename it"
    else:
        message = "is listed in its directory, but is not there: remove the dangling link"
    return Problem(file_ref(path), "error", "Unreadable", "", message)


def _directory(path: str, directory: Directory, files: Mapping[str, FileContent]) -> ConfigTexts:
    names = sorted(name for name in directory.names if name.startswith(PREFIX))
    texts: list[Text] = []
    problems: list[Problem] = []
    for name in names:
        full = f"{path.rstrip('/')}/{name}"
        content = files.get(full, Missing())
        if isinstance(content, Present):
            texts.append(Text(file_ref(full), content.data, alone=False))
        else:
            problems.append(_unreadable(full, content))
    if not names:
        message = f"no file in this directory begins with {PREFIX}: the built-in list is in force; rename the files"
        return ConfigTexts((), "default", (_place(path, message),))
    return ConfigTexts(tuple(texts), "directory", tuple(problems))


def _config_map(inputs: Inputs) -> ConfigTexts:
    lost = tuple(fault for fault in inputs.objects.faults if fault.ref == CONFIG_MAP_REF and fault.severity == "error")
    if lost:
        return ConfigTexts((), "ConfigMap", lost)
    found: ConfigMap | None = inputs.objects.objects(CONFIG_MAP).get(CONFIG_MAP_REF)
    if found is None:
        # It may stand in a manifest that cannot be read: then nobody knows that there is none.
        faults = inputs.objects.faults
        unread = tuple(fault for fault in faults if fault.ref.kind == "File" and fault.severity == "error")
        return ConfigTexts((), "ConfigMap", unread) if unread else ConfigTexts()
    keys = sorted(key for key in found.data if key.startswith(PREFIX))
    # A ConfigMap that is mounted whole makes a file of each key: with this one name, the file of the old agent.
    single = "config" if "config" in found.data else "ip-masq-agent" if keys == ["ip-masq-agent"] else None
    if single is not None:
        return ConfigTexts((_text(found, single, alone=True),), "ConfigMap")
    if keys:
        return ConfigTexts(tuple(_text(found, key, alone=False) for key in keys), "ConfigMap")
    there = f"it has {', '.join(sorted(found.data))}" if found.data else "it is empty"
    message = f'has no key "config" ({there}): the built-in list is in force; put the configuration under that key'
    return ConfigTexts((), "default", (Problem(CONFIG_MAP_REF, "warning", "NotFound", "data", message),))


def _text(found: ConfigMap, key: str, *, alone: bool) -> Text:
    # Half of a surrogate pair cannot be in a ConfigMap of the API; in a file it would be a fault of that text.
    data = found.data[key].encode("utf-8", "surrogatepass")
    return Text(CONFIG_MAP_REF, data, field_path(("data", key)), alone)
