"""Jobs that arrive at a cluster: from traces of real clusters, from a table of one's own, or drawn."""
