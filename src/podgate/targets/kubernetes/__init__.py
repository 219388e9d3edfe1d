"""The Kubernetes API as something that is written: status, labels, own objects, Events; and who may write."""
