"""The server of the controller: connections, the protocol, and the answers."""
