"""Tables as people have them in files, read and written."""
