"""Outputs: what the rows become for other programs."""
