"""What a kernel without nf_tables means; watching itself is tried in tests/kernel."""

import errno

import pytest

from podgate.joints import ApplyError
from podgate.linux.netlink import NetlinkError
from podgate.linux.nftables_watch import NO_NF_TABLES, refused


@pytest.mark.parametrize("code", [code for code in NO_NF_TABLES if code != errno.EAFNOSUPPORT])
def test_a_kernel_without_nf_tables_is_named_with_the_module(code: int) -> None:
    said = r"reading it failed .*: if .* load the module nf_tables"
    with pytest.raises(ApplyError, match=said) as raised, refused("reading it", ApplyError):
        raise NetlinkError(code)
    assert raised.value.reason == "KernelLacksFeature"
