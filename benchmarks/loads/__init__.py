"""Loads as real streams bring them, the sizes in which they are run, and the right answers to questions about them."""
