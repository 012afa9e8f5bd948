"""What the desk keeps on a Prefect server: pool, queues, blocks, deployments, automations, and a record of them."""
