"""The guarded HTTP client with which the coordinator calls other servers."""
