"""Clusters of several users: who they are, what each may do, and the folders that they share."""
