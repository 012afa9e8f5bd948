"""Every evaluation in a store on one page, from manifests alone: `python -m stages history --out history.html`."""
