"""Groups and chains: runs of workflows that the SDK generates."""
