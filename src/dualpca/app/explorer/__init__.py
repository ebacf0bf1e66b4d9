"""The latent-space explorer: a small server on this machine, and the page that it serves.

`lens` is one interface to every kind of model, of which `lenses` has one each; `session` holds one
model with one table, `guard` decides who may ask, `app` answers, `serving` opens the port.
"""
