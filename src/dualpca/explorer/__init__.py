"""The latent-space explorer: a small server on this machine, and the page that it serves.

`lenses` says what can be done with each kind of model, `session` holds one model with one table,
`guard` decides who may ask, `app` answers, `serving` opens the port.
"""
