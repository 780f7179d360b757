"""Services: a model on a machine under an engine, the requests that it serves, and the largest load that it bears."""
