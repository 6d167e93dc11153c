"""The workers, the local stack and the command line of Lamina."""
