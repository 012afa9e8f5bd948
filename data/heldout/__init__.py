"""What training text must not repeat: held-out text and the items of suites."""
