"""The past of an engine's states, kept: each version of a source as one commit of stores of ours."""
