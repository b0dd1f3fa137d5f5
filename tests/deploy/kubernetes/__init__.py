"""A stand-in for a Kubernetes cluster, for the real `helm` and `kubectl`: `with Cluster(folder) as cluster`.

Its API server keeps the kinds of objects that the chart makes, and refuses what the real one refuses: names that are
taken, kinds and namespaces that are not there, fields that Kubernetes' schemas do not know, changes of what may not
change. Pods are processes of this machine, from this very code and a real Redis, with the Secrets, volumes, variables
and probes of their template; a Service leads to those that are ready, and `kubectl port-forward` to their ports.

What is not real:
- Images. A container has the programs that its image is for (`pods.py`), and else sees this machine: its user, its file
  system (mounted folders are elsewhere, and are named so), its network (ports are free ones, listened to on 127.0.0.1).
- What only a real machine enforces: resources, security contexts, network policies, disruption budgets, autoscalers.
- Hooks of a container's life (preStop), liveness probes, the periods and thresholds of the others; no ReplicaSets.
- Who may do what: every client may do all. Of a server-side apply lists are replaced as a whole, and no other manager
  of a field is asked.
"""

from tests.deploy.kubernetes.cluster import Cluster

__all__ = ["Cluster"]
