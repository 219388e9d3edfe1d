"""Kubernetes' own kinds as frozen structs, and each kind as a ``Kind`` value.

Here: one module per group of kinds, with only the fields that podgate reads. Not here: kinds of podgate's own
(features/<name>/policy.py), and where objects come from (sources/).
Invariant: an object of the API decodes, whatever else it holds: fields that are not named here are ignored.
"""
