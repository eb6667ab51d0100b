"""What callers and operators see: the graph, the settings, HTTP and the command line."""
