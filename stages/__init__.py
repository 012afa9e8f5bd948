"""The pipeline's stages. They run anywhere and never import Prefect."""
