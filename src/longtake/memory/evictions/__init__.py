"""Policies that forget token by token, a file each."""
