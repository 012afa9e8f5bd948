"""What the server of the desk adds to that of Prefect."""
