"""The Kubernetes API as requests and frames: credentials, list, watch, patch. It knows no features and no kinds."""
