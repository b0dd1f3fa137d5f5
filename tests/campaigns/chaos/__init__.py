"""Faults on purpose: nodes, their store and the network between them are broken while events come in.

    python -m tests.campaigns.chaos --minutes 20

The network is a proxy of the tests' own (`proxy.py`), everywhere: network namespaces are never used.
"""
