"""The processes of a desk: which there are, who keeps them running, how they are started, told apart and stopped."""
