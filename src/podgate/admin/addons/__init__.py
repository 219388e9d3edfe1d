"""``podgate addon``: keeps a cluster's add-ons as the manifests of a folder say, as Kubernetes' addon manager does."""
