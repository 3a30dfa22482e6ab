"""The twelve cases of a lost, repeated or changed request, with the official Python SDK as client.

Nothing here shares code with the server: `lab` starts real server processes behind a relay that
keeps every byte, `replies` judges what came back, `consumer` concludes what a client may, and the
physical rows are read back by readback.py in a process of its own.
"""
