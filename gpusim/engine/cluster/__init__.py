"""Jobs on a cluster, as a policy of kind `jobs` says: in rounds (`rounds`) or from event to event (`events`)."""
