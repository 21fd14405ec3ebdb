"""Adapters: Consilience under the tools that people already use. Each imports its tool when it is first called."""
