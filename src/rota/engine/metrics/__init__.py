"""The coordinator's metrics: totals, rates and time series."""
