"""Fixtures of the API's tests: certificates, once per session.

Here: that fixture. Not here: servers. Invariant: nothing of it outlives the session.
"""

import pytest

from tests.support.certificates import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates") / "pki")
