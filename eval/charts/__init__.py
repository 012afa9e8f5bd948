"""The plots that the report, the history and Prefect artifacts share: figures in, inline SVG or PNG out."""
