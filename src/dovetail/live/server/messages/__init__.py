"""Requests and replies: a command imports only the modules of those that it uses."""
