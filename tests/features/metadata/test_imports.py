"""What the data path loads: it lives in 25 MiB, so no YAML, no Kubernetes, no web framework, no regular surprises."""

import json
import subprocess
import sys

DATA_PATH = ("assemble", "clients", "fields", "filter", "head", "redact", "tokens", "verdict")
FORBIDDEN = ("yaml", "h11", "asyncio", "urllib", "http", "email", "kubernetes", "podgate.model.kinds", "podgate.joints")


def loaded(modules: tuple[str, ...]) -> set[str]:
    lines = "\n".join(f"import podgate.features.metadata.{name}" for name in modules)
    code = f"{lines}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_data_path_loads_nothing_heavy() -> None:
    found = loaded(DATA_PATH)
    assert "podgate.features.metadata.rules" in found
    assert [name for name in found if name.startswith(FORBIDDEN)] == []


def test_the_list_would_see_what_compile_loads() -> None:
    assert {"yaml", "podgate.model.kinds.pods", "podgate.joints"} <= loaded(("compile",))
