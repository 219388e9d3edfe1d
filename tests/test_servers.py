"""The small process: what it loads. What it does is tested with the features that serve."""

import json
import subprocess
import sys

from podgate import servers
from podgate.joints import Inputs
from podgate.model.frozen import file_ref
from podgate.model.problems import Problem

FORBIDDEN = (
    "yaml",
    "podgate.kubeapi",
    "podgate.model.kinds",
    "podgate.sources.manifests",
    "aiohttp",
    "h11",
    "inotify_simple",
    "pathlib",
    "http.server",
)


def test_the_process_loads_nothing_heavy() -> None:
    code = (
        "import json, sys\nfrom podgate.features.metadata import dropin\nimport podgate.servers, podgate.cli\n"
        "from podgate.observe.logs import stderr_log\n"
        "from podgate.features.metadata.settings import Settings\n"
        "dropin.SERVER.steps(Settings(firewall=False), stderr_log({}))\nprint(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(json.loads(done.stdout))
    assert "podgate.features.metadata.server.client" in found
    assert [name for name in sorted(found) if name.startswith(FORBIDDEN)] == []


def test_a_problem_is_said_without_looking_for_its_line() -> None:
    problem = Problem(file_ref("/etc/policy"), "error", "Missing", "rules[0]", "is not there")
    assert servers._describe(problem, Inputs()) == "/etc/policy:rules[0]: is not there"
