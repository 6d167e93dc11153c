"""The local stack: what the cloud provides, as child processes on loopback, and the services themselves."""
