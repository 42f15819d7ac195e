"""Which cards exist and which may be used. May import the leaves beside the folders."""
