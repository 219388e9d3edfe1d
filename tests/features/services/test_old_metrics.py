"""kube-proxy's metrics by their names."""

from podgate.features.services.old_metrics import old_metrics
from podgate.observe.metrics import Distribution, Measured

STEP = (("step", "nftables/ip6"),)
SPENT = Distribution((1.0,), (1, 0), 0.5)

OURS = (
    Measured("podgate_services_sync_duration_seconds", SPENT, STEP, "histogram"),
    Measured("podgate_services_sync_age_seconds", 10.0, STEP),
    Measured("podgate_services_sync_total", 7.0, (*STEP, ("result", "failure")), "counter"),
    Measured("podgate_services_sync_total", 9.0, (*STEP, ("result", "success")), "counter"),
    Measured("podgate_services_sync_age_seconds", 10.0, (("step", "listeners"),)),
    Measured("podgate_services_ready", 1.0),
)


def test_a_reading_of_a_familys_step_has_the_old_name_too() -> None:
    found = {each.name: (each.value, each.labels, each.kind) for each in old_metrics(OURS, 100.0)}
    family = (("ip_family", "IPv6"),)
    assert found == {
        "kubeproxy_sync_proxy_rules_duration_seconds": (SPENT, family, "histogram"),
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds": (90.0, family, "gauge"),
        "kubeproxy_sync_proxy_rules_nftables_sync_failures_total": (7.0, family, "counter"),
    }
