"""Contracts and waivers as files: what a library's owner promises for an operation, and accepts."""
