"""Findings: verdicts in a sentence, one rule a module."""
