"""`bscrit plot`: the figures of the paper for this model, drawn from a frozen Report."""
