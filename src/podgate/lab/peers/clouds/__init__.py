"""Fakes of the clouds' metadata servers, faithful where a proxy in front of them could go wrong."""
