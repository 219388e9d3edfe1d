"""A health check node port that another program holds, from the socket to the Event, over real HTTP."""

import io
import json
import socket

from podgate.commandline.options import settings_from
from podgate.features.services.feature import FEATURE
from podgate.features.services.settings import Settings
from podgate.kubeapi.access import Access
from podgate.observe.logs import Log
from tests.support.fake_apiserver import RESOURCES, FakeApiServer
from tests.support.fake_objects import Resource
from tests.support.netns import netns
from tests.support.poll import poll_async
from tests.support.telling_agent import telling_agent

REPORTS = Resource("podgate.dev", "v1alpha1", "NodeReport", "nodereports", False)
PORT = 32100
SERVICE = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "type": "LoadBalancer",
        "clusterIP": "10.96.0.10",
        "clusterIPs": ["10.96.0.10"],
        "ipFamilies": ["IPv4"],
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": PORT,
        "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}],
    },
}
SETTINGS = settings_from(Settings, {"node_name": "n1", "nodeport_addresses": "all"})


async def story() -> None:
    steps = tuple(step for step in FEATURE.steps(SETTINGS) if step.name in ("pages", "listeners"))
    out = io.StringIO()
    async with FakeApiServer(*RESOURCES, REPORTS).serving() as server:
        server.put("nodes", {"metadata": {"name": "n1"}})
        server.put("services", SERVICE)
        access = Access(server.url, namespace="kube-system")
        with socket.create_server(("127.0.0.1", PORT)):
            async with telling_agent(FEATURE, SETTINGS, access, "n1", Log(out, "json", lambda: 0.0), own=steps):
                await poll_async(lambda: bool(server.objects.of("events").objects))
    (event,) = server.objects.of("events").objects.values()
    assert (event["reason"], event["type"]) == ("FailedToStartServiceHealthcheck", "Warning")
    assert event["regarding"]["name"] == "web"
    assert event["note"].startswith(f"spec.healthCheckNodePort: node n1: port {PORT} is in use by")
    lines = [json.loads(line)["message"] for line in out.getvalue().splitlines()]
    assert sum(line.startswith("Service/shop/web: ") or "FailedToStart" in line for line in lines) <= 1


def test_it_becomes_an_event_of_the_service_told_by_the_node_that_met_it() -> None:
    with netns() as node:
        node.run_async(story)
