"""Every evaluation in a store on one page, from manifests and the ledger of alerts alone.

Run: python -m stages history --out history.html
"""
