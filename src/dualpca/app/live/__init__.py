"""A monitor at work: rows that arrive, judged, logged and shown in the browser.

`following` reads what is appended to a file or comes through a pipe; `records` makes rows of its
lines; `judging` judges them, writes alarms and a log, and keeps a state from which a killed watch
goes on; `window` holds the last rows for the page, which `server` serves.
"""
