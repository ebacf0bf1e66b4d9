"""The models, as fitted, and the functions that fit them."""
