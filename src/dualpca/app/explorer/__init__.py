"""The latent-space explorer: a small server on this machine, and the page that it serves.

`lenses` is one interface to every kind of model; `session` holds one model with one table;
`messages` are the requests and answers; `guard` decides who may ask; `app` answers and opens the
port.
"""
