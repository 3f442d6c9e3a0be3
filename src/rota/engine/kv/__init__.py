"""The key-value store and the locks inside the batch."""
