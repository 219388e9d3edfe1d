"""What users of a cloud's libraries do first: whom am I, where am I, a token. And what they should not get.

Here: the usual calls of google-auth, botocore and azure-identity, and what came of each. It runs in a Pod of a lab,
with the libraries on PYTHONPATH. Not here: what should have come (tests/lab/test_metadata_clients.py).
Invariant: a library's error is an outcome, said by its class; whatever else goes wrong ends the program.

    python3 calls.py gce|aws|azure    prints a JSON object: call to outcome
"""

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


def library(name: str) -> Any:
    """Give a module that is not among podgate's own requirements."""
    return importlib.import_module(name)


def outcome(call: Callable[[], object], errors: tuple[type[Exception], ...]) -> object:
    try:
        return call()
    except errors as error:
        return type(error).__name__


def gce() -> Mapping[str, object]:
    auth, metadata = library("google.auth"), library("google.auth.compute_engine._metadata")
    request = library("google.auth.transport.requests").Request()
    engine, errors = library("google.auth.compute_engine"), (library("google.auth.exceptions").GoogleAuthError,)

    def token() -> object:
        credentials = engine.Credentials(scopes=[SCOPE])
        credentials.refresh(request)
        return credentials.token

    def identity() -> object:
        credentials = engine.IDTokenCredentials(request, "https://example.com", use_metadata_identity_endpoint=True)
        credentials.refresh(request)
        return credentials.token

    calls = {
        "on gce": lambda: metadata.is_on_gce(request),
        "project": lambda: auth.default()[1],
        "zone": lambda: metadata.get(request, "instance/zone"),
        "account": lambda: metadata.get_service_account_info(request)["email"],
        "universe": lambda: metadata.get_universe_domain(request),
        "token": token,
        "identity": identity,
        "kube-env": lambda: metadata.get(request, "instance/attributes/kube-env"),
    }
    return {name: outcome(call, errors) for name, call in calls.items()}


def aws() -> Mapping[str, object]:
    utils, session = library("botocore.utils"), library("botocore.session").Session()
    credentials = session.get_credentials()
    return {
        "token": bool(utils.IMDSFetcher()._fetch_metadata_token()),
        "region": utils.InstanceMetadataRegionFetcher().retrieve_region(),
        "credentials": credentials and credentials.get_frozen_credentials().secret_key,
    }


def azure() -> Mapping[str, object]:
    credential = library("azure.identity").ManagedIdentityCredential()
    errors = (library("azure.core.exceptions").ClientAuthenticationError,)
    scope = "https://management.azure.com/.default"
    return {"token": outcome(lambda: credential.get_token(scope).token, errors)}


if __name__ == "__main__":
    print(json.dumps({"gce": gce, "aws": aws, "azure": azure}[sys.argv[1]]()))
