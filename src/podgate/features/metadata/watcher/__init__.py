"""The second process of the metadata proxy: follows Pods and policies, and tells the first what is in force."""
